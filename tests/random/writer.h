#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "random/random_program.h"

namespace tessera::random {

/// Writes a program down, value by value, and decides by chance. Operators that their inference refuses leave no trace.
class Writer {
 public:
  Writer(Program& program, uint64_t seed) : program_(program), engine_(seed) {}

  // --- Chance

  int64_t between(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine_); }
  bool one_in(int64_t n) { return between(1, n) == 1; }
  template <typename T>
  const T& one_of(const std::vector<T>& choices) {
    return choices[static_cast<size_t>(between(0, static_cast<int64_t>(choices.size()) - 1))];
  }
  std::mt19937_64& engine() { return engine_; }

  // --- Values

  Graph& graph() { return *program_.model.graph; }
  const Facts& facts(const Value* value) const { return program_.facts.at(value->name); }
  Dims dims(const Value* value) const;
  int64_t extent(const Expr& extent) const { return extent.evaluate(program_.symbols); }

  /// A value that has been written, later ones rather than earlier ones; null if none is as asked.
  template <typename Condition>
  Value* pick(Condition is_wanted) {
    std::vector<Value*> wanted;
    for (Value* value : pool_)
      if (is_wanted(value)) wanted.push_back(value);
    if (wanted.empty()) return nullptr;
    auto last = static_cast<int64_t>(wanted.size()) - 1;
    return wanted[static_cast<size_t>(std::max(between(0, last), between(0, last)))];
  }
  Value* pick_number();                            ///< any float or integer
  Value* pick_float();                             ///< any float
  Value* pick_exact();                             ///< a number that is exact
  Value* pick_of_rank(size_t least, size_t most);  ///< a number of such a rank

  Shape random_shape(size_t least_rank, size_t most_rank);
  /// From now on, some float sources have NaN and infinities among their elements.
  void allow_specials() { specials_ = true; }
  bool has_specials() const { return specials_; }
  /// A fresh input or state of integers in [-bound, bound] (of unsigned types in [0, bound], of bool 0 and 1).
  Value* source(const Shape& shape, DType dtype, double bound = 4);
  /// int64 numbers in [low, high], as an input, a state or a constant.
  Value* indices(const Shape& shape, int64_t low, int64_t high);
  Value* ints(std::vector<int64_t> elements) { return graph().constant_int64(std::move(elements)); }
  /// A value of the same type that broadcasts to that shape: an old one, or a fresh one.
  Value* companion(const Value* value);

  // --- Nodes

  /// A node whose results have these facts; null if the operator refuses its operands, or the bound is too large for
  /// exact results.
  Node* node(std::string_view type, std::vector<Value*> operands, std::vector<Attribute> attributes, Facts facts,
             size_t results = 1);
  /// A source that holds these elements; later operators do not pick it.
  Value* given(Tensor data, bool is_state);
  /// A copy of a node with these operands, whose results `known` receives; null if the operator refuses its operands.
  Node* copy(const Node& node, const std::vector<Value*>& operands, std::map<const Value*, Value*>& known);
  /// Lets later operators pick a value, of which these facts are known.
  void offer(Value* value, Facts facts);
  bool add(std::string_view type, std::vector<Value*> operands, std::vector<Attribute> attributes, Facts facts) {
    return node(type, std::move(operands), std::move(attributes), facts) != nullptr;
  }

 private:
  Program& program_;
  std::mt19937_64 engine_;
  std::vector<Value*> pool_;
  int next_ = 0;
  bool specials_ = false;
};

/// Adds an operator, or a few that go together; false if no existing value suits it.
using Addition = bool (*)(Writer&);
/// All building blocks of a program; one that is listed often is likelier.
const std::vector<Addition>& additions(Operators operators);

// One family each.
std::vector<Addition> elementwise_additions();
std::vector<Addition> movement_additions();
std::vector<Addition> indexing_additions();
std::vector<Addition> contraction_additions();
std::vector<Addition> normalization_additions();
std::vector<Addition> case_additions();

/// The largest magnitude up to which a type's integers, and sums of them on the way, are exact.
double exact_limit(DType dtype);

/// One of x's dimensions; x is not a scalar.
inline int64_t any_axis(Writer& w, const Value* x) {
  return w.between(0, static_cast<int64_t>(x->rank()) - 1);
}

}  // namespace tessera::random
