#pragma once

#include <functional>

#include "tessera/ir/graph.h"

namespace tessera {

/// While this object exists, these nodes count as read, so that passes which remove dead nodes keep them: the first
/// result of each is a further output of the graph, behind its own. A node that communicates must stay although its
/// rank reads none of its results, since every member of its group takes part; and with it the loops that it is in, to
/// their ends.
class KeptNodes {
 public:
  KeptNodes(Graph& graph, const std::function<bool(const Node&)>& stays);
  KeptNodes(const KeptNodes&) = delete;
  KeptNodes& operator=(const KeptNodes&) = delete;
  ~KeptNodes() { graph_.outputs.resize(own_); }

 private:
  Graph& graph_;
  size_t own_;
};

}  // namespace tessera
