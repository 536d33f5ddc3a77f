#include "tessera/kernels/cpu/elementwise/jit/chain.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace tessera::kernels::jit {
namespace {

constexpr int kAny = 0;

struct Known {
  Operation operation;
  int operands;  // kAny: one or more
};

const std::map<std::string_view, Known>& known_operators() {
  static const std::map<std::string_view, Known> known = {
      {"Abs", {Operation::abs, 1}},    {"Add", {Operation::add, 2}},     {"Cast", {Operation::cast, 1}},
      {"Div", {Operation::div, 2}},    {"Max", {Operation::max, kAny}},  {"Min", {Operation::min, kAny}},
      {"Mul", {Operation::mul, 2}},    {"Neg", {Operation::neg, 1}},     {"Reciprocal", {Operation::reciprocal, 1}},
      {"Relu", {Operation::relu, 1}},  {"Sqrt", {Operation::sqrt, 1}},   {"Sub", {Operation::sub, 2}},
      {"Sum", {Operation::add, kAny}}, {"Where", {Operation::where, 3}},
  };
  return known;
}

bool is_computed(DType dtype) {
  return dtype == DType::float32 || dtype == DType::bfloat16 || dtype == DType::float16;
}

}  // namespace

std::optional<Operation> operation_of(const Node& node, const std::vector<DType>& operands, DType result) {
  const auto known = known_operators().find(node.op_type);
  if (known == known_operators().end() || !node.domain.empty()) return std::nullopt;
  const auto [operation, count] = known->second;
  if (operands.empty() || (count != kAny && operands.size() != static_cast<size_t>(count))) return std::nullopt;
  if (!is_computed(result)) return std::nullopt;
  if (operation == Operation::cast) return is_computed(operands[0]) ? std::optional(operation) : std::nullopt;
  size_t first = 0;
  if (operation == Operation::where) {
    // It moves bits; a store of float16 would turn a signalling NaN into a quiet one.
    if (operands[0] != DType::boolean || result == DType::float16) return std::nullopt;
    first = 1;
  }
  const bool same = std::all_of(operands.begin() + first, operands.end(), [&](DType dtype) { return dtype == result; });
  return same ? std::optional(operation) : std::nullopt;
}

}  // namespace tessera::kernels::jit
