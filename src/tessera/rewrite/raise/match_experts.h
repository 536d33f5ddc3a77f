#pragma once

#include <optional>
#include <vector>

#include "tessera/ir/experts.h"

/// What the passes that raise mixtures of experts look for (raise_experts, raise_expert_sums).
namespace tessera::rewrite {

/// The hidden elements of an expert, h = act(g) or act(g) · (u + beta): the values before any activation, and the rest
/// as attributes of Experts, `gated` among them.
struct HiddenUnit {
  Value* gate = nullptr;  ///< g; with u in it, if it is fused
  Value* up = nullptr;    ///< u, if it is apart
  std::vector<Attribute> attributes;
};
std::optional<HiddenUnit> hidden_unit(const Graph& graph, Value* hidden);

/// Which experts each token chooses, and with which weights.
struct Routing {
  Value* choices = nullptr;  ///< [tokens…, choices], indices from TopK; there may be several dimensions of tokens
  Value* weights = nullptr;  ///< [tokens…, choices]
  int64_t experts = 0;       ///< all choices are below this

  bool operator==(const Routing&) const = default;
};
/// The routing of a matrix [tokens…, experts] that holds the weights of chosen experts, and zeros for the others.
std::optional<Routing> routing_of_matrix(Value* matrix);
/// A routing, and the number of the expert whose weights `column` [tokens…, 1] holds.
struct RoutingColumn {
  Routing routing;
  int64_t expert = 0;
};
std::optional<RoutingColumn> routing_of_column(Value* column);

/// The value before changes of shape that keep its elements' order.
Value* without_reshapes(Value* value);

/// Adds an Experts node before `before`; `operands` are in ExpertsOperand's order, with nulls. Null if their types or
/// numbers of experts differ.
Value* emit_experts(Graph& graph, std::vector<Value*> operands, const std::vector<Attribute>& attributes,
                    const Node* before, std::string_view name);

}  // namespace tessera::rewrite
