#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tessera/compiler/device_layouts.h"
#include "tessera/ir/graph.h"
#include "tessera/mesh/sharding.h"

/// Parameters that rewriting stacks into one state (Value::rows). A split of the stack's rows over the mesh is, for
/// each parameter, a place.
namespace tessera::compiler {

/// Where row `row` of `rows` is that are split over `axes`, the major first.
std::vector<PlacedAxis> place_of_row(const std::vector<AxisRef>& axes, int64_t row, int64_t rows);

/// The layout of rows: split over axes, the major first, at a common place.
struct RowsLayout {
  std::vector<AxisRef> axes;
  std::vector<PlacedAxis> at;
};
/// The layout of rows that are at these places, in order; nullopt if no split puts them there. Example: rows at x=2 and
/// x=3, with x of size 4, are split over x:(2)2 at x:(1)2=1. Rows at x=0 and x=1 are split over x, so that two of its
/// ranks have none.
std::optional<RowsLayout> layout_of_rows(std::vector<std::vector<PlacedAxis>> places);

/// The stacks that rewriting makes of annotated parameters, as those of experts, laid out by the annotations of each.
/// A device that has some of these parameters holds some rows of the stack: no node has to run there for that.
class StackLayouts {
 public:
  /// Finds the stacks of which nodes say how all parameters lie, and which a split of rows puts where they are. What is
  /// left of these parameters in `forms` is the place of the whole stack. `kept`: names that must survive rewriting.
  StackLayouts(const OnnxModel& model, const Mesh& mesh, const std::set<std::string>& kept, Forms& forms);

  /// As annotations are written, by the stacks' names.
  const std::map<std::string, std::string>& layouts() const { return layouts_; }
  /// The nodes that a stack's reader will absorb, and where it is: those that vanish and come of some of the rows, but
  /// not of all, as the terms of a sum over experts do.
  const std::map<const Node*, std::vector<PlacedAxis>>& inside() const { return inside_; }
  /// Null for other nodes.
  const std::vector<PlacedAxis>* place_inside(const Node* node) const;
  /// The parameters whose stacks do not come about in that form of the model, of which these names must survive.
  std::set<std::string> missing(const OnnxModel& model, const std::set<std::string>& kept) const;

 private:
  struct Stack;
  struct Rewritten;
  static Rewritten rewritten(const OnnxModel& model, const std::set<std::string>& kept);
  void add(const Graph& graph, const Stack& stack, const Rewritten& rewritten, const Mesh& mesh, Forms& forms);
  void find_inside(const Graph& graph, const Stack& stack, const std::vector<const Node*>& readers,
                   const Rewritten& rewritten);

  std::map<std::string, std::string> layouts_;
  std::map<std::string, std::vector<std::string>> rows_;  // by the stacks' names
  std::map<const Node*, std::vector<PlacedAxis>> inside_;
};

}  // namespace tessera::compiler
