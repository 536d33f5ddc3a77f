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

/// The place of row `row` of `rows`, which are split over `axes`, major first.
std::vector<PlacedAxis> place_of_row(const std::vector<AxisRef>& axes, int64_t row, int64_t rows);

/// The layout of rows: split over axes (major first) at a common place.
struct RowsLayout {
  std::vector<AxisRef> axes;
  std::vector<PlacedAxis> at;
};
/// The layout of rows that are at these places, in order; nullopt if no split gives these places. Example: rows at x=2
/// and x=3, with x of size 4, are split over x:(2)2 at x:(1)2=1. Rows at x=0 and x=1 are split over x, and two of its
/// ranks have none.
std::optional<RowsLayout> layout_of_rows(std::vector<std::vector<PlacedAxis>> places);

/// The stacks that rewriting makes of annotated parameters, such as those of experts. The parameters' annotations give
/// the stack's layout: a device that has some of these parameters holds some rows of the stack, and no node needs to
/// run there for that.
class StackLayouts {
 public:
  /// Finds the stacks whose parameters are all annotated with places that a split of rows gives. In `forms`, these
  /// parameters keep only the place of the whole stack. `kept`: names that rewriting must keep.
  StackLayouts(const OnnxModel& model, const Mesh& mesh, const std::set<std::string>& kept, Forms& forms);

  /// The layouts, as annotations are written, by the stacks' names.
  const std::map<std::string, std::string>& layouts() const { return layouts_; }
  /// The nodes that a stack's reader will absorb, with the stack's place: those that vanish and depend on some but not
  /// all of its rows, such as the terms of a sum over experts.
  const std::map<const Node*, std::vector<PlacedAxis>>& inside() const { return inside_; }
  /// Null for other nodes.
  const std::vector<PlacedAxis>* place_inside(const Node* node) const;
  /// The parameters whose stacks are not made in that form of the model, if rewriting keeps these names.
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
