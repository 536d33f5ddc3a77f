#pragma once

#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::stages {

/// The graph of a step as one micro-batch sees it: the nodes of the first one and those of none, each with the operands
/// whose elements it reads. Values of other micro-batches are replaced by those of the first.
///
///     s0 = f(x0)   s1 = f(x1)   s = s0 + s1        →   s0 = f(x0)   s = s0 + s0
class OneBatch {
 public:
  struct Operand {
    const Value* value = nullptr;
    int made_by = -1;  ///< a node's index; -1: an input, state, constant or expression
  };

  /// Throws a user error that names the node if micro-batches differ.
  explicit OneBatch(const Graph& graph);

  int size() const { return static_cast<int>(nodes_.size()); }
  /// In the graph's order.
  const Node& node(int index) const { return *nodes_[static_cast<size_t>(index)]; }
  const std::vector<Operand>& operands(int index) const { return operands_[static_cast<size_t>(index)]; }
  /// The nodes that read its results, ascending, each once.
  const std::vector<int>& readers(int index) const { return readers_[static_cast<size_t>(index)]; }
  /// Of the node itself or, in another micro-batch, of the one in its place; -1 for a node of another graph.
  int index_of(const Node& node) const { return node.number < index_.size() ? index_[node.number] : -1; }
  /// The value itself, or the one in its place.
  const Value* first(const Value* value) const;
  int maker(const Value* value) const { return value->producer ? index_of(*value->producer) : -1; }
  /// How often a step runs the node.
  int runs(int index) const { return node(index).seat.micro_batch < 0 ? 1 : parts_; }

 private:
  int parts_ = 1;
  std::vector<const Node*> nodes_;
  std::vector<int> index_;  // by Node::number
  std::vector<std::vector<Operand>> operands_;
  std::vector<std::vector<int>> readers_;
};

}  // namespace tessera::stages
