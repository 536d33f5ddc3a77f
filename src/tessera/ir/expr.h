#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Values of symbols, by name.
using Symbols = std::map<std::string, int64_t, std::less<>>;

/// An integer expression over symbols (dimensions such as `batch`, never negative) and mesh axis indices (`@tp`, this
/// rank's coordinate along axis tp). Immutable and cheap to copy; kept in canonical polynomial form, so that equal
/// polynomials compare equal: `batch*3 + batch` == `4*batch`.
///
/// Besides + - × it knows floordiv, ceildiv, mod, min and max. Their simplifications are sound, not complete:
/// expressions that compare unequal may still always have equal values.
class Expr {
 public:
  Expr(int64_t constant = 0) : constant_(constant) {}  // NOLINT: integers are expressions
  static Expr symbol(std::string_view name);
  /// The index of this rank along a mesh axis; prints as `@name`.
  static Expr axis_index(std::string_view axis);
  /// Reads what str() prints, and the forms exporters write ("sequence + 1", "Min(512, s)", "s//2"); nullopt otherwise.
  static std::optional<Expr> parse(std::string_view text);

  bool is_constant() const { return !polynomial_; }
  std::optional<int64_t> constant() const { return polynomial_ ? std::nullopt : std::optional(constant_); }
  bool is(int64_t value) const { return !polynomial_ && constant_ == value; }
  /// The symbol's name if the expression is just that symbol, else nullopt.
  std::optional<std::string> as_symbol() const;

  /// The value under a binding of every symbol; throws a user error naming a symbol without one.
  using Lookup = std::function<std::optional<int64_t>(std::string_view)>;
  int64_t evaluate(const Lookup& lookup) const;
  int64_t evaluate(const std::map<std::string, int64_t, std::less<>>& bindings) const;
  /// The expression with every symbol replaced by the result of `replace` (nullopt: kept).
  Expr substitute(const std::function<std::optional<Expr>(std::string_view)>& replace) const;
  void collect_symbols(std::set<std::string>& into) const;
  /// Whether it mentions a size (a symbol other than an axis index), and whether it mentions an axis index.
  bool mentions_sizes() const;
  bool mentions_axes() const;

  /// A bound that holds for all values of the symbols (each ≥ 0), if one is known.
  std::optional<int64_t> lower_bound() const;
  std::optional<int64_t> upper_bound() const;

  /// a / b if b divides a for every value of the symbols (as polynomials with integer coefficients), else nullopt.
  static std::optional<Expr> exact_divide(const Expr& a, const Expr& b);

  std::string str() const;

  friend Expr operator+(const Expr& a, const Expr& b);
  friend Expr operator-(const Expr& a, const Expr& b);
  friend Expr operator*(const Expr& a, const Expr& b);
  friend Expr floordiv(const Expr& a, const Expr& b);
  friend Expr ceildiv(const Expr& a, const Expr& b);
  friend Expr mod(const Expr& a, const Expr& b);
  friend Expr min(const Expr& a, const Expr& b);
  friend Expr max(const Expr& a, const Expr& b);
  friend bool operator==(const Expr& a, const Expr& b);
  /// A total order of no arithmetic meaning, for deterministic containers.
  friend bool operator<(const Expr& a, const Expr& b);

  // The structure of an expression, for code that translates it (into ONNX nodes, say).
  enum class AtomKind { symbol, floordiv, mod, min, max };
  struct Atom;
  struct Term {
    int64_t coefficient = 0;
    std::vector<std::shared_ptr<const Atom>> factors;  ///< sorted; repeated for powers; empty for the constant term
  };
  /// Sum of terms; a constant has one term without factors (zero has none).
  std::vector<Term> terms() const;

 private:
  struct Polynomial;
  static Expr from_terms(std::vector<Term> terms);
  static Expr from_atom(AtomKind kind, std::string name, std::vector<Expr> arguments);
  bool is_same(const Expr& other) const;  // one object; quick, and false for equal ones that were built apart

  int64_t constant_ = 0;
  std::shared_ptr<const Polynomial> polynomial_;  ///< null for a constant
};

struct Expr::Atom {
  AtomKind kind;
  std::string name;             ///< of a symbol; empty otherwise
  std::vector<Expr> arguments;  ///< of floordiv, mod, min, max; empty for a symbol
  std::string key;              ///< printed form, which orders and identifies it
};

using Shape = std::vector<Expr>;

/// "[batch, 6, sequence + 1]"
std::string to_string(const Shape& shape);
/// Product of all extents.
Expr product(const Shape& shape);
/// The extents as numbers if all are constant.
std::optional<std::vector<int64_t>> constants_of(const Shape& shape);

}  // namespace tessera
