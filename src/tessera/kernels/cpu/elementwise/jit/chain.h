#pragma once

#include <compare>
#include <optional>
#include <vector>

#include "tessera/ir/graph.h"

/// The compiler of element-wise nodes: a chain of them becomes one loop of machine code, in which only operands and
/// requested results go through memory.
namespace tessera::kernels::jit {

enum class Operation {
  add,  // add, min and max take one operand or more: op(op(a, b), c)
  sub,
  mul,
  div,
  min,
  max,
  neg,
  abs,
  sqrt,
  reciprocal,
  relu,
  where,
  cast,
};

/// What a compiled function computes. Functions of equal chains are one; they do not depend on extents and elements.
///
/// Example: x · x + 1 with float32 x of many elements and one element 1, of which the caller needs both nodes' results:
/// operands {{float32, false}, {float32, true}}, steps {{mul, float32, {0, 0}, true}, {add, float32, {~0, 1}, true}}.
struct Chain {
  struct Operand {
    DType dtype;
    bool fixed;  ///< one element for all
    auto operator<=>(const Operand&) const = default;
  };
  struct Step {
    Operation operation;
    DType dtype;                ///< of its result
    std::vector<int> operands;  ///< i ≥ 0: operand i of the chain; ~j: the result of step j
    bool stored;
    auto operator<=>(const Step&) const = default;
  };
  std::vector<Operand> operands;
  std::vector<Step> steps;
  auto operator<=>(const Chain&) const = default;
};

/// The node's operation; none if it is unknown here or has elements of other types than the compiler's.
std::optional<Operation> operation_of(const Node& node, const std::vector<DType>& operands, DType result);

}  // namespace tessera::kernels::jit
