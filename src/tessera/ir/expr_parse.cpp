#include <numeric>
#include <optional>
#include <string>

#include "tessera/ir/expr.h"

// Reads expressions as exporters write them.
namespace tessera {
namespace {

// A quotient that is about to be rounded: floor(height/2 - 1/2) is floordiv(height - 1, 2).
struct Fraction {
  Expr numerator;
  int64_t denominator = 1;

  std::optional<Expr> whole() const {
    if (denominator == 1) return numerator;
    return Expr::exact_divide(numerator, denominator);
  }
};

// expression := term (('+'|'-') term)*
// term := factor (('*'|'/'|'//') factor)*
// factor := number | name | call | '(' expression ')'
class Parser {
 public:
  static constexpr size_t kLongest = 4096;  ///< of the text, in bytes

  explicit Parser(std::string_view text) : text_(text) {}

  std::optional<Expr> whole() {
    auto result = sum();
    skip();
    return at_ == text_.size() && result ? result->whole() : std::nullopt;
  }

 private:
  using Read = std::optional<Fraction>;

  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(std::string_view token) {
    skip();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }

  Read sum() {
    if (++depth_ > kDeepest) return std::nullopt;
    Read left = term();
    while (left) {
      const int sign = take("+") ? 1 : take("-") ? -1 : 0;
      if (sign == 0) break;
      Read right = term();
      if (!right) return std::nullopt;
      left = bounded(left->numerator * right->denominator + sign * (right->numerator * left->denominator),
                     left->denominator, right->denominator);
    }
    --depth_;
    return left;
  }

  Read term() {
    Read left = factor();
    while (left) {
      if (take("//")) {
        Read right = factor();
        if (!right || right->numerator.is(0)) return std::nullopt;
        left = Fraction{floordiv(left->numerator * right->denominator, right->numerator * left->denominator)};
      } else if (take("/")) {
        Read right = factor();
        auto parts = right && right->denominator == 1 ? right->numerator.constant() : std::nullopt;
        if (!parts || *parts < 1) return std::nullopt;
        left = bounded(left->numerator, left->denominator, *parts);
      } else if (take("*")) {
        Read right = factor();
        if (!right) return std::nullopt;
        left = bounded(left->numerator * right->numerator, left->denominator, right->denominator);
      } else {
        break;
      }
    }
    return left;
  }

  Read factor() {
    skip();
    if (take("(")) {
      Read inside = sum();
      return inside && take(")") ? inside : std::nullopt;
    }
    if (take("-")) {
      if (++depth_ > kDeepest) return std::nullopt;
      Read negated = factor();
      --depth_;
      if (negated) negated->numerator = Expr(0) - negated->numerator;
      return negated;
    }
    size_t start = at_;
    while (at_ < text_.size() && std::string_view("+-*/(), ").find(text_[at_]) == std::string_view::npos) ++at_;
    std::string word(text_.substr(start, at_ - start));
    if (word.empty()) return std::nullopt;
    if (word.find_first_not_of("0123456789") == std::string::npos)
      return word.size() < 19 ? Read(Fraction{std::stoll(word)}) : std::nullopt;
    if (!take("(")) return Fraction{Expr::symbol(word)};
    Read first = sum();
    if (!first) return std::nullopt;
    if (word == "floor" && take(")")) return Fraction{floordiv(first->numerator, first->denominator)};
    if ((word == "ceil" || word == "ceiling") && take(")"))
      return Fraction{ceildiv(first->numerator, first->denominator)};
    Read second = take(",") ? sum() : std::nullopt;
    if (!second || !take(")")) return std::nullopt;
    auto a = first->whole(), b = second->whole();
    if (!a || !b) return std::nullopt;
    if (word == "min" || word == "Min") return Fraction{min(*a, *b)};
    if (word == "max" || word == "Max") return Fraction{max(*a, *b)};
    if (b->is(0)) return std::nullopt;
    if (word == "floordiv" || word == "FloorDiv") return Fraction{floordiv(*a, *b)};
    if (word == "mod" || word == "Mod") return Fraction{mod(*a, *b)};
    return std::nullopt;
  }

  // Nobody writes a longer expression as a dimension: (a + b + c)*(a + b + c)*… grows with every factor.
  static Read bounded(Expr numerator, int64_t parts, int64_t more) {
    if (numerator.terms().size() > kMostTerms || numerator.str().size() > 4 * kLongest) return std::nullopt;
    if (parts > kFinest / more) return std::nullopt;
    // In lowest terms: (2n - 2)/4 is (n - 1)/2, so that equal fractions have equal floors.
    int64_t common = parts * more;
    for (const Expr::Term& term : numerator.terms()) common = std::gcd(common, term.coefficient);
    return Fraction{*Expr::exact_divide(numerator, common), parts * more / common};
  }

  static constexpr int kDeepest = 64;
  static constexpr size_t kMostTerms = 256;
  static constexpr int64_t kFinest = int64_t{1} << 31;  ///< a denominator
  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::optional<Expr> Expr::parse(std::string_view text) {
  if (text.size() > Parser::kLongest) return std::nullopt;
  return Parser(text).whole();
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + shape[i].str();
  return text + "]";
}

}  // namespace tessera
