#pragma once

#include <unordered_map>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::passes {

/// The dependences between the nodes of a graph. Nodes are numbered in the graph's order.
struct Dependences {
  explicit Dependences(const Graph& graph);

  std::vector<Node*> nodes;
  std::unordered_map<const Node*, int> index;
  /// For each node, the nodes that read its results. The next value of a state waits for all nodes before it that read
  /// the state, so that it can be written in place. A node that reads two results of another is listed twice. A Send or
  /// Recv waits for the one before it: messages between two ranks arrive in the order in which they are sent, and
  /// communications start in order, so moving one forward may delay others.
  std::vector<std::vector<int>> after;

 private:
  void keep_behind_readers(const Graph& graph);
  void keep_messages_in_order();
};

}  // namespace tessera::passes
