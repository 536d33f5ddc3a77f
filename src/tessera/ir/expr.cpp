#include "tessera/ir/expr.h"

#include <algorithm>
#include <limits>

#include "tessera/base/error.h"

namespace tessera {

/// The bounds of an expression, if they are known.
struct ExprBounds {
  std::optional<int64_t> low, high;
};

struct Expr::Polynomial {
  std::vector<Expr::Term> terms;  // sorted by key, no zero coefficients, never a lone constant
  std::string text;
  ExprBounds bounds;  // cached: in ((s//2)//2)//2…, both bounds ask for both bounds of the dividend, twice as often at
                      // each depth
  bool sizes = false, axes = false;  // whether it mentions symbols that are sizes, and indices of axes
};

namespace {

using Term = Expr::Term;

int compare(const std::vector<std::shared_ptr<const Expr::Atom>>& a,
            const std::vector<std::shared_ptr<const Expr::Atom>>& b) {
  // More factors first, so that the constant comes last: "batch*sequence + batch + 1".
  if (a.size() != b.size()) return a.size() > b.size() ? -1 : 1;
  for (size_t i = 0; i < a.size(); ++i)
    if (int order = a[i]->key.compare(b[i]->key)) return order;
  return 0;
}

std::string print(const std::vector<Term>& terms) {
  std::string text;
  for (const Term& term : terms) {
    int64_t coefficient = term.coefficient;
    if (!text.empty()) {
      text += coefficient < 0 ? " - " : " + ";
      if (coefficient < 0) coefficient = -coefficient;
    }
    const bool shown = term.factors.empty() || (coefficient != 1 && coefficient != -1);
    if (shown)
      text += std::to_string(coefficient);
    else if (coefficient == -1)
      text += '-';
    bool follows = shown;
    for (const auto& atom : term.factors) {
      if (follows) text += '*';
      text += atom->key;
      follows = true;
    }
  }
  return text;
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) fail("shape", "a dimension expression divides {} by zero", a);
  if (b == -1 && a == std::numeric_limits<int64_t>::min()) fail("shape", "the quotient {} / -1 overflows 64 bits", a);
  int64_t quotient = a / b;
  return quotient - ((a % b != 0) && ((a < 0) != (b < 0)));
}

/// With the divisor's sign.
int64_t floor_modulo(int64_t a, int64_t b) {
  if (b == 0) fail("shape", "a dimension expression divides {} by zero", a);
  if (b == -1) return 0;  // the only divisor for which % can overflow
  int64_t remainder = a % b;
  return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

int64_t checked_add(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) fail("shape", "the sum of dimensions {} + {} overflows 64 bits", a, b);
  return sum;
}

int64_t evaluate_atom(const Expr::Atom& atom, const Expr::Lookup& lookup) {
  auto argument = [&](int i) { return atom.arguments[i].evaluate(lookup); };
  switch (atom.kind) {
    case Expr::AtomKind::symbol: {
      auto value = lookup(atom.name);
      if (!value) fail("shape", "the symbol '{}' has no value; bind it with `shapes` {}=N", atom.name, atom.name);
      return *value;
    }
    case Expr::AtomKind::floordiv:
      return floor_divide(argument(0), argument(1));
    case Expr::AtomKind::mod:
      return floor_modulo(argument(0), argument(1));
    case Expr::AtomKind::min:
      return std::min(argument(0), argument(1));
    case Expr::AtomKind::max:
      return std::max(argument(0), argument(1));
  }
  return 0;
}

// ExprBounds assume that every symbol is at least zero.
std::optional<int64_t> atom_lower(const Expr::Atom& atom) {
  switch (atom.kind) {
    case Expr::AtomKind::symbol:
      return 0;
    case Expr::AtomKind::mod: {
      auto divisor = atom.arguments[1].lower_bound();
      return divisor && *divisor >= 0 ? std::optional<int64_t>(0) : std::nullopt;
    }
    case Expr::AtomKind::floordiv: {
      auto low = atom.arguments[0].lower_bound();
      auto divisor = atom.arguments[1].constant();
      if (low && divisor && *divisor > 0) return floor_divide(*low, *divisor);
      auto divisor_low = atom.arguments[1].lower_bound();
      if (low && *low >= 0 && divisor_low && *divisor_low >= 0) return 0;
      return std::nullopt;
    }
    case Expr::AtomKind::min: {
      auto a = atom.arguments[0].lower_bound(), b = atom.arguments[1].lower_bound();
      return a && b ? std::optional(std::min(*a, *b)) : std::nullopt;
    }
    case Expr::AtomKind::max: {
      auto a = atom.arguments[0].lower_bound(), b = atom.arguments[1].lower_bound();
      if (a && b) return std::max(*a, *b);
      return a ? a : b;
    }
  }
  return std::nullopt;
}

std::optional<int64_t> atom_upper(const Expr::Atom& atom) {
  switch (atom.kind) {
    case Expr::AtomKind::mod: {
      auto divisor = atom.arguments[1].upper_bound();
      return divisor && *divisor > 0 ? std::optional(*divisor - 1) : std::nullopt;
    }
    case Expr::AtomKind::floordiv: {
      auto high = atom.arguments[0].upper_bound();
      auto divisor = atom.arguments[1].constant();
      return high && divisor && *divisor > 0 ? std::optional(floor_divide(*high, *divisor)) : std::nullopt;
    }
    case Expr::AtomKind::min: {
      auto a = atom.arguments[0].upper_bound(), b = atom.arguments[1].upper_bound();
      if (a && b) return std::min(*a, *b);
      return a ? a : b;
    }
    case Expr::AtomKind::max: {
      auto a = atom.arguments[0].upper_bound(), b = atom.arguments[1].upper_bound();
      return a && b ? std::optional(std::max(*a, *b)) : std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

/// `bound` + coefficient·factor; nullopt if either is, or if it overflows.
std::optional<int64_t> add_product(std::optional<int64_t> bound, int64_t coefficient, std::optional<int64_t> factor) {
  int64_t product = 0, sum = 0;
  if (!bound || !factor || __builtin_mul_overflow(coefficient, *factor, &product) ||
      __builtin_add_overflow(*bound, product, &sum))
    return std::nullopt;
  return sum;
}

/// Products of factors that may be negative are not followed.
ExprBounds bounds_of(const std::vector<Term>& terms) {
  ExprBounds sum{0, 0};
  for (const Term& term : terms) {
    ExprBounds product{1, 1};
    for (const auto& atom : term.factors) {
      const auto low = atom_lower(*atom);
      if (!low || *low < 0) return {};
      product.low = add_product(0, *low, product.low);
      const auto high = atom_upper(*atom);
      product.high = high ? add_product(0, *high, product.high) : std::nullopt;
    }
    if (term.coefficient < 0) std::swap(product.low, product.high);
    sum = {add_product(sum.low, term.coefficient, product.low), add_product(sum.high, term.coefficient, product.high)};
  }
  return sum;
}

}  // namespace

Expr Expr::from_terms(std::vector<Term> terms) {
  std::sort(terms.begin(), terms.end(), [](const Term& a, const Term& b) { return compare(a.factors, b.factors) < 0; });
  std::vector<Term> merged;
  for (Term& term : terms) {
    if (!merged.empty() && compare(merged.back().factors, term.factors) == 0)
      merged.back().coefficient = checked_add(merged.back().coefficient, term.coefficient);
    else
      merged.push_back(std::move(term));
  }
  std::erase_if(merged, [](const Term& term) { return term.coefficient == 0; });
  if (merged.empty()) return 0;
  if (merged.size() == 1 && merged[0].factors.empty()) return merged[0].coefficient;
  Polynomial made;
  made.text = print(merged);
  made.bounds = bounds_of(merged);
  for (const Term& term : merged)
    for (const auto& atom : term.factors) {
      const bool axis = atom->kind == AtomKind::symbol && atom->name.starts_with('@');
      made.axes |= axis;
      made.sizes |= atom->kind == AtomKind::symbol && !axis;
      for (const Expr& argument : atom->arguments) {
        made.axes |= argument.mentions_axes();
        made.sizes |= argument.mentions_sizes();
      }
    }
  made.terms = std::move(merged);
  Expr result;
  result.polynomial_ = std::make_shared<Polynomial>(std::move(made));
  return result;
}

Expr Expr::from_atom(AtomKind kind, std::string name, std::vector<Expr> arguments) {
  auto atom = std::make_shared<Atom>();
  atom->kind = kind;
  if (kind == AtomKind::symbol) {
    atom->key = name;
  } else {
    static constexpr std::string_view kNames[] = {"", "floordiv", "mod", "min", "max"};
    atom->key.append(kNames[static_cast<int>(kind)]).append("(").append(arguments[0].str());
    atom->key.append(", ").append(arguments[1].str()).append(")");
  }
  atom->name = std::move(name);
  atom->arguments = std::move(arguments);
  return from_terms({Term{1, {std::move(atom)}}});
}

Expr Expr::symbol(std::string_view name) {
  return from_atom(AtomKind::symbol, std::string(name), {});
}
Expr Expr::axis_index(std::string_view axis) {
  return symbol("@" + std::string(axis));
}

std::vector<Term> Expr::terms() const {
  if (polynomial_) return polynomial_->terms;
  if (constant_ == 0) return {};
  return {Term{constant_, {}}};
}

std::optional<std::string> Expr::as_symbol() const {
  if (!polynomial_ || polynomial_->terms.size() != 1) return std::nullopt;
  const Term& term = polynomial_->terms[0];
  if (term.coefficient != 1 || term.factors.size() != 1 || term.factors[0]->kind != AtomKind::symbol)
    return std::nullopt;
  return term.factors[0]->name;
}

int64_t Expr::evaluate(const Lookup& lookup) const {
  if (!polynomial_) return constant_;
  int64_t sum = 0;
  for (const Term& term : polynomial_->terms) {
    int64_t value = term.coefficient;
    for (const auto& atom : term.factors)
      if (__builtin_mul_overflow(value, evaluate_atom(*atom, lookup), &value))
        fail("shape", "the dimension expression {} overflows 64 bits", str());
    if (__builtin_add_overflow(sum, value, &sum)) fail("shape", "the dimension expression {} overflows 64 bits", str());
  }
  return sum;
}

int64_t Expr::evaluate(const std::map<std::string, int64_t, std::less<>>& bindings) const {
  return evaluate([&](std::string_view name) -> std::optional<int64_t> {
    auto found = bindings.find(name);
    return found == bindings.end() ? std::nullopt : std::optional(found->second);
  });
}

Expr Expr::substitute(const std::function<std::optional<Expr>(std::string_view)>& replace) const {
  if (!polynomial_) return *this;
  // nullopt if the factor stays.
  auto replacement = [&](const Atom& atom) -> std::optional<Expr> {
    if (atom.kind == AtomKind::symbol) return replace(atom.name);
    Expr a = atom.arguments[0].substitute(replace), b = atom.arguments[1].substitute(replace);
    if (a.is_same(atom.arguments[0]) && b.is_same(atom.arguments[1])) return std::nullopt;
    switch (atom.kind) {
      case AtomKind::floordiv:
        return floordiv(a, b);
      case AtomKind::mod:
        return mod(a, b);
      case AtomKind::min:
        return min(a, b);
      default:
        return max(a, b);
    }
  };
  std::vector<Term> kept;
  Expr changed = 0;
  for (const Term& term : polynomial_->terms) {
    Term stays{term.coefficient, {}};
    std::optional<Expr> product;
    for (const auto& atom : term.factors)
      if (const auto factor = replacement(*atom))
        product = product ? *product * *factor : *factor;
      else
        stays.factors.push_back(atom);
    if (product)
      changed = changed + from_terms({std::move(stays)}) * *product;
    else
      kept.push_back(std::move(stays));
  }
  if (kept.size() == polynomial_->terms.size()) return *this;
  return from_terms(std::move(kept)) + changed;
}

bool Expr::is_same(const Expr& other) const {
  return polynomial_ == other.polynomial_ && constant_ == other.constant_;
}

bool Expr::mentions_sizes() const {
  return polynomial_ && polynomial_->sizes;
}

bool Expr::mentions_axes() const {
  return polynomial_ && polynomial_->axes;
}

void Expr::collect_symbols(std::set<std::string>& into) const {
  if (!polynomial_) return;
  for (const Term& term : polynomial_->terms)
    for (const auto& atom : term.factors) {
      if (atom->kind == AtomKind::symbol) into.insert(atom->name);
      for (const Expr& argument : atom->arguments) argument.collect_symbols(into);
    }
}

std::optional<int64_t> Expr::lower_bound() const {
  return polynomial_ ? polynomial_->bounds.low : constant_;
}

std::optional<int64_t> Expr::upper_bound() const {
  return polynomial_ ? polynomial_->bounds.high : constant_;
}

std::string Expr::str() const {
  return polynomial_ ? polynomial_->text : std::to_string(constant_);
}

Expr operator+(const Expr& a, const Expr& b) {
  if (!a.polynomial_ && !b.polynomial_) return checked_add(a.constant_, b.constant_);
  if (b.is(0)) return a;
  if (a.is(0)) return b;
  std::vector<Term> terms = a.terms();
  for (const Term& term : b.terms()) terms.push_back(term);
  return Expr::from_terms(std::move(terms));
}

Expr operator*(const Expr& a, const Expr& b) {
  if (!a.polynomial_ && !b.polynomial_) {
    int64_t value = 0;
    if (__builtin_mul_overflow(a.constant_, b.constant_, &value))
      fail("shape", "the product of dimensions {} x {} overflows 64 bits", a.constant_, b.constant_);
    return value;
  }
  if (a.is(1)) return b;
  if (b.is(1)) return a;
  std::vector<Term> terms;
  for (const Term& x : a.terms())
    for (const Term& y : b.terms()) {
      Term term{0, x.factors};
      if (__builtin_mul_overflow(x.coefficient, y.coefficient, &term.coefficient))
        fail("shape", "the product of dimensions ({}) x ({}) overflows 64 bits", a.str(), b.str());
      term.factors.insert(term.factors.end(), y.factors.begin(), y.factors.end());
      std::sort(term.factors.begin(), term.factors.end(), [](const auto& p, const auto& q) { return p->key < q->key; });
      terms.push_back(std::move(term));
    }
  return Expr::from_terms(std::move(terms));
}

Expr operator-(const Expr& a, const Expr& b) {
  return a + Expr(-1) * b;
}

std::optional<Expr> Expr::exact_divide(const Expr& a, const Expr& b) {
  if (b.is(0)) return std::nullopt;
  if (!a.polynomial_ && !b.polynomial_) {
    if (floor_modulo(a.constant_, b.constant_) != 0) return std::nullopt;
    if (b.constant_ == -1 && a.constant_ == std::numeric_limits<int64_t>::min()) return std::nullopt;
    return a.constant_ / b.constant_;
  }
  if (a == b) return Expr(1);
  if (a.is(0)) return Expr(0);
  if (b.is(1)) return a;
  auto divisor_terms = b.terms();
  if (divisor_terms.size() != 1) {
    // A sum divides only its own multiples: try (a's leading term / b's leading term) once.
    auto lead_a = a.terms().front(), lead_b = divisor_terms.front();
    auto quotient = exact_divide(from_terms({lead_a}), from_terms({lead_b}));
    return quotient && *quotient * b == a ? quotient : std::nullopt;
  }
  const Term& divisor = divisor_terms[0];
  std::vector<Term> quotient;
  for (Term term : a.terms()) {
    if (floor_modulo(term.coefficient, divisor.coefficient) != 0) return std::nullopt;
    if (divisor.coefficient == -1 && term.coefficient == std::numeric_limits<int64_t>::min()) return std::nullopt;
    term.coefficient /= divisor.coefficient;
    for (const auto& atom : divisor.factors) {
      auto found = std::find_if(term.factors.begin(), term.factors.end(),
                                [&](const auto& candidate) { return candidate->key == atom->key; });
      if (found == term.factors.end()) return std::nullopt;
      term.factors.erase(found);
    }
    quotient.push_back(std::move(term));
  }
  return from_terms(std::move(quotient));
}

Expr floordiv(const Expr& a, const Expr& b) {
  if (!a.polynomial_ && !b.polynomial_) return floor_divide(a.constant_, b.constant_);
  if (b.is(1)) return a;
  if (auto quotient = Expr::exact_divide(a, b)) return *quotient;
  // floordiv(b*q + r, b) = q + floordiv(r, b)
  std::vector<Term> whole, rest;
  for (const Term& term : a.terms()) {
    auto quotient = Expr::exact_divide(Expr::from_terms({term}), b);
    if (quotient)
      for (const Term& part : quotient->terms()) whole.push_back(part);
    else
      rest.push_back(term);
  }
  if (!whole.empty()) return Expr::from_terms(std::move(whole)) + floordiv(Expr::from_terms(std::move(rest)), b);
  auto divisor = b.constant();
  auto low = a.lower_bound(), high = a.upper_bound();
  if (divisor && *divisor > 0 && low && high && floor_divide(*low, *divisor) == floor_divide(*high, *divisor))
    return floor_divide(*low, *divisor);
  return Expr::from_atom(Expr::AtomKind::floordiv, "", {a, b});
}

Expr ceildiv(const Expr& a, const Expr& b) {
  return floordiv(a + b - 1, b);
}

Expr mod(const Expr& a, const Expr& b) {
  if (!a.polynomial_ && !b.polynomial_) return floor_modulo(a.constant_, b.constant_);
  if (b.is(1) || Expr::exact_divide(a, b)) return 0;
  auto divisor = b.constant();
  auto low = a.lower_bound(), high = a.upper_bound();
  if (divisor && low && high && *low >= 0 && *high < *divisor) return a;
  std::vector<Term> rest;
  for (const Term& term : a.terms())
    if (!Expr::exact_divide(Expr::from_terms({term}), b)) rest.push_back(term);
  Expr remainder = Expr::from_terms(std::move(rest));
  if (!(remainder == a)) return mod(remainder, b);  // smaller, perhaps constant
  return Expr::from_atom(Expr::AtomKind::mod, "", {a, b});
}

Expr min(const Expr& a, const Expr& b) {
  if (!a.polynomial_ && !b.polynomial_) return std::min(a.constant_, b.constant_);
  if (auto low = (a - b).lower_bound(); low && *low >= 0) return b;
  if (auto low = (b - a).lower_bound(); low && *low >= 0) return a;
  return b < a ? Expr::from_atom(Expr::AtomKind::min, "", {b, a}) : Expr::from_atom(Expr::AtomKind::min, "", {a, b});
}

Expr max(const Expr& a, const Expr& b) {
  if (!a.polynomial_ && !b.polynomial_) return std::max(a.constant_, b.constant_);
  if (auto low = (a - b).lower_bound(); low && *low >= 0) return a;
  if (auto low = (b - a).lower_bound(); low && *low >= 0) return b;
  return b < a ? Expr::from_atom(Expr::AtomKind::max, "", {b, a}) : Expr::from_atom(Expr::AtomKind::max, "", {a, b});
}

bool operator==(const Expr& a, const Expr& b) {
  if (!a.polynomial_ || !b.polynomial_) return !a.polynomial_ && !b.polynomial_ && a.constant_ == b.constant_;
  return a.polynomial_ == b.polynomial_ || a.polynomial_->text == b.polynomial_->text;
}

bool operator<(const Expr& a, const Expr& b) {
  if (!a.polynomial_ && !b.polynomial_) return a.constant_ < b.constant_;
  if (!a.polynomial_ || !b.polynomial_) return !a.polynomial_;  // constants first
  return a.polynomial_->text < b.polynomial_->text;
}

Expr product(const Shape& shape) {
  Expr result = 1;
  for (const Expr& extent : shape) result = result * extent;
  return result;
}

std::optional<std::vector<int64_t>> constants_of(const Shape& shape) {
  std::vector<int64_t> dims;
  for (const Expr& extent : shape) {
    if (!extent.is_constant()) return std::nullopt;
    dims.push_back(*extent.constant());
  }
  return dims;
}

}  // namespace tessera
