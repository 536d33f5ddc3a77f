#pragma once

#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::rewrite {

/// A Loop or Scan in one form.
struct LoopForm {
  struct Sequence {
    Value* whole = nullptr;  ///< whose first dimension is taken apart
    bool reverse = false;
  };
  struct Scanned {
    int64_t axis = 0;
    bool reverse = false;
  };
  Node* node = nullptr;
  const Graph* body = nullptr;
  Value* trips = nullptr;
  Value* condition = nullptr;
  std::vector<Value*> initial;
  std::vector<Sequence> sequences;
  std::vector<Scanned> scanned;                       ///< of the results after the carried values
  const Value *iteration = nullptr, *runs = nullptr;  ///< inputs of a Loop's body
  size_t first_input = 0;                             ///< of the body: the first carried value
  bool computes_condition = false;                    ///< the body's first output

  const Value* carried_input(size_t index) const { return body->inputs[first_input + index]; }
  const Value* item_input(size_t index) const { return carried_input(initial.size() + index); }
  size_t carried_output(size_t index) const { return (computes_condition ? 1 : 0) + index; }
  size_t scanned_output(size_t index) const { return carried_output(initial.size() + index); }
};

/// The form of a Loop. Throws a user error if its body does not fit its operands.
LoopForm form_of_loop(Node* node);
/// The form of a Scan; its operands are transposed, and its trip count becomes a value of the graph. Throws a user
/// error if its body or its attributes do not fit its operands, and if its sequences may differ in length.
LoopForm form_of_scan(Graph& graph, Node* node);

/// Whether all carried values are sums, and a product has a factor that is an item of a stack of parameters, or a row
/// that the iteration's number selects: a loop over experts. Unrolled, it becomes one operator (raise/expert_sums.cpp).
bool is_sum_over_parameters(const LoopForm& form);

}  // namespace tessera::rewrite
