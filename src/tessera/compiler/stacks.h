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

/// The parameters in each stack that rewriting makes, by the stack's name, if these names must survive. Nothing if the
/// model cannot be rewritten: whoever compiles it hears of it.
std::map<std::string, std::vector<std::string>> stacks_of(const OnnxModel& model, const std::set<std::string>& kept);

/// Where row `row` of `rows` is that are split over `axes`, the major first.
std::vector<PlacedAxis> place_of_row(const std::vector<AxisRef>& axes, int64_t row, int64_t rows);
/// The axes over which rows are split that are at these places, in order; nullopt if no split puts them there.
std::optional<std::vector<AxisRef>> axes_of_rows(std::vector<std::vector<PlacedAxis>> places);

}  // namespace tessera::compiler
