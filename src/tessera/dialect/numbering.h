#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::dialect {

/// Numbers for steps of functions: equal numbers mean equal operators with equal attributes on equal operands, whatever
/// the names of values and the order of nodes. The number of a node that communicates, or calls a function that may,
/// also depends on how many such nodes precede it.
class Numbering {
 public:
  struct Steps {
    std::vector<std::pair<int, const Node*>> all;  ///< in the function's order, literals left out
    std::vector<int> given;                        ///< its communications, in order, then its results
  };

  /// `functions`: those that it may call, each known by its stated specification (function_spec.h).
  Steps number(const Function& function, const std::vector<Function>& functions);

 private:
  int id(const std::string& text) { return ids_.emplace(text, static_cast<int>(ids_.size())).first->second; }

  std::map<std::string, int> ids_;
};

/// The function that a node calls; null if it calls none.
const Function* called_by(const Node& node, const std::vector<Function>& functions);

/// A node's attributes in order of their names, with their contents; except kOrderAttribute, since the node's place
/// states its order.
std::string attributes_text(const Node& node);

/// Type, extents and bytes.
std::string literal_text(const Tensor& tensor);

}  // namespace tessera::dialect
