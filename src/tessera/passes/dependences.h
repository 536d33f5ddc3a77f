#pragma once

#include <unordered_map>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::passes {

/// Which nodes of a graph wait for which. Nodes are numbered in the graph's order.
struct Dependences {
  explicit Dependences(const Graph& graph);

  std::vector<Node*> nodes;
  std::unordered_map<const Node*, int> index;
  /// By node: those that read its results. What a state takes over after a step waits for all that read the state
  /// before it in the graph, so that it can be written over. A node that reads two results of another is there twice.
  /// A Send or Recv waits for the one before it: messages between two ranks arrive in the order in which they are sent,
  /// and communications start in order, so that one which comes early may hold up others.
  std::vector<std::vector<int>> after;

 private:
  void keep_behind_readers(const Graph& graph);
  void keep_messages_in_order();
};

}  // namespace tessera::passes
