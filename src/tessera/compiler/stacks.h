#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/mesh/sharding.h"

/// Parameters that rewriting stacks into one state (Value::rows). A split of the stack's rows over the mesh is, for
/// each parameter, a place.
namespace tessera::compiler {

/// What rewriting makes of a model.
struct Stacks {
  std::map<std::string, std::vector<std::string>> rows;  ///< the parameters in each stack, by the stack's name
  std::set<std::string> names;                           ///< all values that are left, if there is a stack
};

/// The stacks that rewriting makes if these names must survive. None if the model cannot be rewritten: whoever compiles
/// it hears of it.
Stacks stacks_of(const OnnxModel& model, const std::set<std::string>& kept);

/// Whether the model has what rewriting may stack: choices among experts.
bool may_have_stacks(const OnnxModel& model);

/// Where row `row` of `rows` is that are split over `axes`, the major first.
std::vector<PlacedAxis> place_of_row(const std::vector<AxisRef>& axes, int64_t row, int64_t rows);

/// How rows lie: split over axes, the major first, at a place that all have in common.
struct RowsLayout {
  std::vector<AxisRef> axes;
  std::vector<PlacedAxis> at;
};
/// The layout of rows that are at these places, in order; nullopt if no split puts them there. Example: rows at x=2 and
/// x=3, with x of size 4, are split over x:(2)2 at x:(1)2=1.
std::optional<RowsLayout> layout_of_rows(std::vector<std::vector<PlacedAxis>> places);

}  // namespace tessera::compiler
