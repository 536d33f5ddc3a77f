#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/graph.h"

/// Short ways to write graphs down and to look at them, for the tests of rewriting.
namespace tessera::rewrite {

/// An input; dimensions as Expr::parse reads them.
inline Value* input(Graph& graph, std::string_view name, std::vector<std::string> dims, DType dtype = DType::float32) {
  Shape shape;
  for (const std::string& dim : dims) shape.push_back(*Expr::parse(dim));
  return graph.add_input(name, {dtype, shape});
}

inline Value* state(Graph& graph, std::string_view name, Dims dims) {
  return graph.add_state(name, Tensor::zeros(DType::float32, std::move(dims)));
}

/// A node with one result.
inline Value* node(Graph& graph, std::string_view type, std::vector<Value*> operands, std::string_view result = "",
                   std::vector<Attribute> attributes = {}) {
  Node* added = graph.add_node(type, std::move(operands), {std::string(result)});
  added->attributes = std::move(attributes);
  return added->outputs[0];
}

inline Value* ints(Graph& graph, std::vector<int64_t> elements) {
  return graph.constant_int64(std::move(elements));
}
inline Value* integer(Graph& graph, int64_t element) {
  return graph.constant_int64({element}, true);
}
inline Value* number(Graph& graph, double element) {
  return graph.constant_scalar(DType::float32, element);
}

/// The number of nodes of each type.
inline std::map<std::string, int> histogram(const Graph& graph) {
  std::map<std::string, int> counts;
  for (const auto& node : graph.nodes()) ++counts[node->op_type];
  return counts;
}

/// Operator types along the chain that leads to a value through first operands, from the value back.
inline std::vector<std::string> chain_to(const Value* value) {
  std::vector<std::string> types;
  for (; value && value->producer; value = value->producer->input(0)) types.push_back(value->producer->op_type);
  return types;
}

}  // namespace tessera::rewrite
