#include "tessera/compiler/stacks.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/rewrite/pipeline.h"

namespace tessera::compiler {

namespace {

bool has_choices(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const auto& node) {
    const std::vector<Graph*> regions = node->regions();
    return node->is("TopK") ||
           std::any_of(regions.begin(), regions.end(), [](const Graph* region) { return has_choices(*region); });
  });
}

using Places = std::vector<std::vector<PlacedAxis>>;

// Takes what all places say alike out of them: whole entries, or major digits of one.
std::vector<PlacedAxis> take_common(Places& places) {
  std::vector<PlacedAxis> common;
  for (const PlacedAxis& first : std::vector<PlacedAxis>(places.front())) {
    const auto own = [&](std::vector<PlacedAxis>& place) {
      return std::find_if(place.begin(), place.end(),
                          [&](const PlacedAxis& entry) { return entry.axis == first.axis; });
    };
    if (std::any_of(places.begin(), places.end(), [&](auto& place) { return own(place) == place.end(); })) continue;
    const auto [name, pre, size] = first.axis;
    for (int64_t minor = 1; minor < size; ++minor) {
      const auto same = [&](auto& place) { return own(place)->index / minor == first.index / minor; };
      if (size % minor != 0 || !std::all_of(places.begin(), places.end(), same)) continue;
      const int64_t major = size / minor;
      common.push_back({{name, pre, major}, first.index / minor});
      for (auto& place : places) {
        const auto entry = own(place);
        const PlacedAxis rest{{name, pre * major, minor}, entry->index % minor};
        if (minor == 1)
          place.erase(entry);
        else
          *entry = rest;
      }
      break;
    }
  }
  return common;
}

}  // namespace

bool may_have_stacks(const OnnxModel& model) {
  return has_choices(*model.graph) || std::any_of(model.functions.begin(), model.functions.end(),
                                                  [](const Function& function) { return has_choices(*function.body); });
}

Stacks stacks_of(const OnnxModel& model, const std::set<std::string>& kept) {
  OnnxModel copy = model.clone();
  rewrite::RewriteOptions options;
  options.barriers = kept;
  try {
    rewrite::rewrite_model(copy, options);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::user) throw;
    return {};
  }
  Stacks stacks;
  for (const Value* state : copy.graph->values_of(ValueKind::state))
    if (!state->rows.empty()) stacks.rows.emplace(state->name, state->rows);
  if (!stacks.rows.empty())
    for (const auto& value : copy.graph->values()) stacks.names.insert(value->name);
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

std::optional<RowsLayout> layout_of_rows(std::vector<std::vector<PlacedAxis>> places) {
  const auto by_axis = [](const PlacedAxis& a, const PlacedAxis& b) { return a.axis < b.axis; };
  RowsLayout layout;
  layout.at = take_common(places);
  for (auto& place : places) std::sort(place.begin(), place.end(), by_axis);
  for (const PlacedAxis& entry : places.front()) layout.axes.push_back(entry.axis);
  do {
    bool same = true;
    for (size_t row = 0; row < places.size() && same; ++row) {
      auto place = place_of_row(layout.axes, static_cast<int64_t>(row), static_cast<int64_t>(places.size()));
      std::sort(place.begin(), place.end(), by_axis);
      same = place == places[row];
    }
    if (same) return layout;
  } while (std::next_permutation(layout.axes.begin(), layout.axes.end()));
  return std::nullopt;
}

}  // namespace tessera::compiler
