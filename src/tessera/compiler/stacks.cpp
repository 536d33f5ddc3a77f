#include "tessera/compiler/stacks.h"

#include <fmt/ranges.h>

#include <algorithm>

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

// Moves the common part of all places out of them: whole entries, or major digits of one.
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

// The axes that split rows which are at these places.
std::optional<std::vector<AxisRef>> axes_of_rows(Places places) {
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

// Whether the model may have experts, which rewriting stacks.
bool may_have_stacks(const OnnxModel& model) {
  return has_choices(*model.graph) || std::any_of(model.functions.begin(), model.functions.end(),
                                                  [](const Function& function) { return has_choices(*function.body); });
}

}  // namespace

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
  if (const auto axes = axes_of_rows(places)) return RowsLayout{*axes, {}};
  const std::vector<PlacedAxis> common = take_common(places);
  const auto axes = axes_of_rows(std::move(places));
  return axes ? std::optional(RowsLayout{*axes, common}) : std::nullopt;
}

/// The parameters of a stack, and its layout.
struct StackLayouts::Stack {
  std::string name;
  std::vector<std::string> rows;
  RowsLayout layout;
  std::string of_row;  ///< the layout of a row, as annotations are written
};

/// The outcome of rewriting a model.
struct StackLayouts::Rewritten {
  std::map<std::string, std::vector<std::string>> stacks;  ///< the parameters in each, by its name
  std::set<std::string> left;                              ///< names of all values, if there is a stack
};

StackLayouts::Rewritten StackLayouts::rewritten(const OnnxModel& model, const std::set<std::string>& kept) {
  Rewritten made;
  const std::optional<OnnxModel> copy = rewrite::rewritten_if_possible(model, kept);
  if (!copy) return made;
  for (const Value* state : copy->graph->values_of(ValueKind::state))
    if (!state->rows.empty()) made.stacks.emplace(state->name, state->rows);
  if (!made.stacks.empty())
    for (const auto& value : copy->graph->values()) made.left.insert(value->name);
  return made;
}

StackLayouts::StackLayouts(const OnnxModel& model, const Mesh& mesh, const std::set<std::string>& kept, Forms& forms) {
  if (!may_have_stacks(model)) return;
  const Graph& graph = *model.graph;
  std::set<std::string> parameters, others = kept;
  for (const auto& [node, of_node] : forms)
    for (const auto& [tensor, form] : of_node) {
      const Value* value = graph.find(tensor);
      const bool may_be_row = value && value->kind == ValueKind::state && !kept.contains(tensor);
      (may_be_row ? parameters : others).insert(tensor);
    }
  const auto laid_out = [&](const std::string& name, const std::vector<std::string>& rows) -> std::optional<Stack> {
    const std::string* common = nullptr;
    std::vector<std::vector<PlacedAxis>> places;
    for (const std::string& each : rows) {
      const Value* row = graph.find(each);
      const Form* form = row && row->uses.size() == 1 ? form_in(forms, row->uses.front().node, each) : nullptr;
      if (!form || form->layout.empty() || (common && *common != form->layout)) return std::nullopt;
      common = &form->layout;
      places.push_back(form->at);
    }
    const auto layout = layout_of_rows(std::move(places));
    return layout ? std::optional(Stack{name, rows, *layout, *common}) : std::nullopt;
  };
  // Annotations keep other parameters as they are, which in turn decides what is stacked.
  std::vector<Stack> found;
  Rewritten made;
  std::set<std::string> stacked = parameters;
  while (stacked.size() > 1) {
    std::set<std::string> apart = others, again;
    std::set_difference(parameters.begin(), parameters.end(), stacked.begin(), stacked.end(),
                        std::inserter(apart, apart.end()));
    found.clear();
    made = rewritten(model, apart);
    for (const auto& [name, rows] : made.stacks)
      if (auto stack = laid_out(name, rows)) {
        again.insert(rows.begin(), rows.end());
        found.push_back(std::move(*stack));
      }
    if (again == stacked) break;
    std::erase_if(again, [&](const std::string& name) { return !stacked.contains(name); });
    stacked = std::move(again);
  }
  if (stacked.size() < 2) return;
  for (const Stack& stack : found) add(graph, stack, made, mesh, forms);
}

void StackLayouts::add(const Graph& graph, const Stack& stack, const Rewritten& rewritten, const Mesh& mesh,
                       Forms& forms) {
  std::vector<std::string> axes;
  for (const AxisRef& axis : stack.layout.axes) axes.push_back(axis.str(mesh));
  const std::string split = axes.empty() ? "-" : fmt::format("{{{}}}", fmt::join(axes, ","));
  layouts_.emplace(stack.name, fmt::format("[{}, {}", split, stack.of_row.substr(1)));
  rows_.emplace(stack.name, stack.rows);
  std::vector<const Node*> readers;
  for (const std::string& row : stack.rows) {
    readers.push_back(graph.find(row)->uses.front().node);
    forms.at(readers.back()).at(row) = {"", {}, stack.layout.at};
  }
  find_inside(graph, stack, readers, rewritten);
}

void StackLayouts::find_inside(const Graph& graph, const Stack& stack, const std::vector<const Node*>& readers,
                               const Rewritten& rewritten) {
  std::map<const Node*, std::set<size_t>> rows_behind;
  for (size_t row = 0; row < readers.size(); ++row) rows_behind[readers[row]].insert(row);
  for (const auto& node : graph.nodes()) {
    std::set<size_t> rows;
    if (const auto own = rows_behind.find(node.get()); own != rows_behind.end()) rows = std::move(own->second);
    for (const Value* operand : node->inputs)
      if (const auto before = rows_behind.find(operand ? operand->producer : nullptr); before != rows_behind.end())
        rows.insert(before->second.begin(), before->second.end());
    rows_behind.erase(node.get());
    const bool is_left = std::any_of(node->outputs.begin(), node->outputs.end(), [&](const Value* result) {
      return result && rewritten.left.contains(result->name);
    });
    if (rows.empty() || rows.size() == readers.size() || is_left) continue;
    rows_behind.emplace(node.get(), std::move(rows));
    inside_.emplace(node.get(), stack.layout.at);
  }
}

const std::vector<PlacedAxis>* StackLayouts::place_inside(const Node* node) const {
  const auto found = inside_.find(node);
  return found == inside_.end() ? nullptr : &found->second;
}

std::set<std::string> StackLayouts::missing(const OnnxModel& model, const std::set<std::string>& kept) const {
  std::set<std::string> names;
  if (rows_.empty()) return names;
  const Rewritten made = rewritten(model, kept);
  for (const auto& [stack, rows] : rows_)
    if (!made.stacks.contains(stack)) names.insert(rows.begin(), rows.end());
  return names;
}

}  // namespace tessera::compiler
