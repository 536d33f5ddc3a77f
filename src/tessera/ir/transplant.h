#pragma once

#include <map>
#include <set>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera {

/// Copies nodes from one graph to another, in which every value has the same name.
class Transplant {
 public:
  explicit Transplant(Graph& to) : to_(to) {}

  /// Appends a copy of the node, whose results are to be these values of the other graph (null where it has none).
  /// Sources that the other graph lacks are copied, too. False if it has one of that name that is something else.
  bool copy(const Node& node, std::vector<Value*> results);
  /// A value of the first graph as the other one has it.
  Value* at(const Value* value) const { return known_.at(value); }

 private:
  Value* source(const Value& value);

  Graph& to_;
  std::map<const Value*, Value*> known_;
};

/// The nodes of a graph that the results are computed by.
std::set<const Node*> makers_of(const Graph& graph, const std::vector<Value*>& results);

}  // namespace tessera
