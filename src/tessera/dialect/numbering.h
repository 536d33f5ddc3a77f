#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::dialect {

/// Numbers for steps of functions: equal numbers are equal operators with equal attributes on equal operands, whatever
/// values are called and in whatever order they stand. What communicates, or calls what may, is told apart by its place
/// among its like, too.
class Numbering {
 public:
  struct Steps {
    std::vector<std::pair<int, const Node*>> all;  ///< in the function's order, literals left out
    std::vector<int> given;                        ///< what it communicates, in order, then its results
  };

  /// `functions`: those that it may call, which are known by what they say that they do (function_spec.h).
  Steps number(const Function& function, const std::vector<Function>& functions);

 private:
  int id(const std::string& text) { return ids_.emplace(text, static_cast<int>(ids_.size())).first->second; }

  std::map<std::string, int> ids_;
};

/// The function that a node calls; null of a node that calls none.
const Function* called_by(const Node& node, const std::vector<Function>& functions);

/// A node's attributes in order of their names, with all that they hold; but not where its communication stands
/// (kOrderAttribute), which its place says.
std::string attributes_text(const Node& node);

/// Type, extents and bytes.
std::string literal_text(const Tensor& tensor);

}  // namespace tessera::dialect
