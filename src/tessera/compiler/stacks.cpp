#include "tessera/compiler/stacks.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/rewrite/pipeline.h"

namespace tessera::compiler {

std::map<std::string, std::vector<std::string>> stacks_of(const OnnxModel& model, const std::set<std::string>& kept) {
  OnnxModel copy = model.clone();
  rewrite::RewriteOptions options;
  options.barriers = kept;
  try {
    rewrite::rewrite_model(copy, options);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::user) throw;
    return {};
  }
  std::map<std::string, std::vector<std::string>> stacks;
  for (const Value* state : copy.graph->values_of(ValueKind::state))
    if (!state->rows.empty()) stacks.emplace(state->name, state->rows);
  return stacks;
}

std::vector<PlacedAxis> place_of_row(const std::vector<AxisRef>& axes, int64_t row, int64_t rows) {
  std::vector<PlacedAxis> place;
  for (const AxisRef& axis : axes) {
    const auto number = [&](const Expr& of) { return *of.constant(); };
    int64_t index = 0;
    while (index + 1 < axis.size && number(split_offset(Expr(rows), Expr(index + 1), axis.size)) <= row) ++index;
    row -= number(split_offset(Expr(rows), Expr(index), axis.size));
    rows = number(split_extent(Expr(rows), Expr(index), axis.size));
    place.push_back({axis, index});
  }
  return place;
}

std::optional<std::vector<AxisRef>> axes_of_rows(std::vector<std::vector<PlacedAxis>> places) {
  const auto by_axis = [](const PlacedAxis& a, const PlacedAxis& b) { return a.axis < b.axis; };
  for (auto& place : places) std::sort(place.begin(), place.end(), by_axis);
  std::vector<AxisRef> axes;
  for (const PlacedAxis& entry : places.front()) axes.push_back(entry.axis);
  do {
    bool same = true;
    for (size_t row = 0; row < places.size() && same; ++row) {
      auto place = place_of_row(axes, static_cast<int64_t>(row), static_cast<int64_t>(places.size()));
      std::sort(place.begin(), place.end(), by_axis);
      same = place == places[row];
    }
    if (same) return axes;
  } while (std::next_permutation(axes.begin(), axes.end()));
  return std::nullopt;
}

}  // namespace tessera::compiler
