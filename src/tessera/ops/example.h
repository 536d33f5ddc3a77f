#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/graph.h"

/// Examples of operators, which their records hold (OpDef::examples). Tests split each over ranks, differentiate it and
/// put it into random programs; docs/operators.md shows its rule.
namespace tessera::ops {

/// What an operand is filled with. All but `reals`, `unit` and `above_one` are exact in every type and in every order
/// of summation.
enum class Fill {
  integers,  ///< -8 … 8
  nonzero,   ///< the same without 0
  positive,  ///< 1 … 9
  small,     ///< 0 … 3
  ordered,   ///< distinct integers in a shuffled order, so that no two elements tie
  reals,     ///< normally distributed
  unit,      ///< in (-1, 1)
  above_one,
  special,           ///< reals with NaN, infinities, both zeros, denormals and the largest finite numbers among them
  special_integers,  ///< integers with NaN, infinities and both zeros among them: exact in every order of summation
};

/// How much a result on many ranks may differ from that on one (tests/property/tolerance.h has the numbers).
enum class Rounding {
  none,        ///< the same bits: movement, element by element, integers, sums of integers below 2^24
  reordered,   ///< sums whose order depends on a rank's extents
  normalized,  ///< exponentials and roots of such sums
  attention,   ///< two products, and a softmax between them
  chained,     ///< several of these one after another, on real numbers
  bfloat16,    ///< results are rounded to 8 bits of mantissa
};

struct ExampleOperand {
  enum class Kind { left_out, input, weight, constant };
  Kind kind = Kind::left_out;
  std::string extents = {};  ///< "4 6"; "b=3 2" has a symbol, and its size in this example
  Fill fill = Fill::integers;
  DType dtype = DType::float32;
  int64_t low = 0, high = 0;  ///< if they differ, its elements are integers in [low, high)
  Tensor data = {};           ///< of a constant
};

/// One node.
struct Example {
  std::string what;  ///< what is particular about it: "a symbolic batch"
  std::vector<ExampleOperand> operands;
  std::vector<Attribute> attributes = {};
  Rounding rounding = Rounding::none;
  size_t results = 1;
};

/// Operands, for tables of examples.
namespace example {

using enum Fill;
using enum Rounding;

inline ExampleOperand left_out() {
  return {};
}
inline ExampleOperand input(std::string extents, Fill fill = Fill::integers, DType dtype = DType::float32) {
  return {.kind = ExampleOperand::Kind::input, .extents = std::move(extents), .fill = fill, .dtype = dtype};
}
/// A parameter: a state of the graph.
inline ExampleOperand weight(std::string extents, Fill fill = Fill::integers, DType dtype = DType::float32) {
  return {.kind = ExampleOperand::Kind::weight, .extents = std::move(extents), .fill = fill, .dtype = dtype};
}
/// Integers in [low, high).
inline ExampleOperand indices(std::string extents, int64_t low, int64_t high, DType dtype = DType::int64) {
  return {.kind = ExampleOperand::Kind::input, .extents = std::move(extents), .dtype = dtype, .low = low, .high = high};
}
inline ExampleOperand constant(Tensor data) {
  return {.kind = ExampleOperand::Kind::constant, .data = std::move(data)};
}
inline ExampleOperand ints(const std::vector<int64_t>& elements) {
  return constant(Tensor::of(DType::int64, {static_cast<int64_t>(elements.size())}, elements));
}
inline ExampleOperand integer(int64_t element) {
  return constant(Tensor::of(DType::int64, {}, std::vector<int64_t>{element}));
}
inline ExampleOperand numbers(const std::vector<float>& elements) {
  return constant(Tensor::of(DType::float32, {static_cast<int64_t>(elements.size())}, elements));
}
inline ExampleOperand number(float element) {
  return constant(Tensor::of(DType::float32, {}, std::vector<float>{element}));
}
inline ExampleOperand boolean(bool element) {
  return constant(Tensor::of(DType::boolean, {}, std::vector<uint8_t>{element}));
}
/// The attribute of operators that work along one dimension.
inline Attribute axis(int64_t at) {
  return {"axis", at};
}

}  // namespace example
}  // namespace tessera::ops
