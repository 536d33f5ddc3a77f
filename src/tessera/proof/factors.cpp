#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/ir/always_equal.h"
#include "tessera/ops/op.h"
#include "tessera/proof/layouts.h"
#include "tessera/spmd/partition/halo.h"

namespace tessera::proof {
namespace {

// One dimension of an operand or result.
struct Slot {
  const Value* value = nullptr;
  size_t dim = 0;
  const DimSharding* split = nullptr;
  bool in_result = false;
  int tensor = 0;  ///< its number among operands or results
};

std::vector<AxisRef> axes_of(const DimSharding& dim) {
  std::vector<AxisRef> axes;
  for (const Part& part : dim.parts)
    for (const AxisRef& axis : part.axes)
      if (axis.size > 1) axes.push_back(axis);
  return axes;
}

class FactorCheck {
 public:
  FactorCheck(const spmd::Program& program, int64_t rank, Report& report)
      : program_(program), mesh_(program.mesh), rank_(rank), report_(report) {}

  void run() {
    for (const auto& node : program_.graph->nodes()) {
      if (!report_.good()) return;
      if (is_placed(*node) && !changes_layout(*node)) check_node(*node);
      if (ops::moves_of(*node) == ops::Moves::in_order) check_reshape(*node);
    }
    for (const spmd::Port& port : program_.outputs)
      if (const spmd::Placement* placed = placement(port.value); placed && placed->sharding.is_partial())
        report_.findings.push_back(
            {"partial",
             fmt::format("the output '{}' is {}; reduce it first", port.name, placed->sharding.str(mesh_)),
             {{rank_, port.value->producer ? port.value->producer->label() : ""}}});
  }

 private:
  const spmd::Placement* placement(const Value* value) const {
    auto found = program_.placements.find(value);
    return found == program_.placements.end() ? nullptr : &found->second;
  }

  // A node with an operand or result that does not stand for a global value is a step of an operator's local form.
  bool is_placed(const Node& node) const {
    auto stands = [&](const Value* value) { return !value || placement(value); };
    return std::all_of(node.inputs.begin(), node.inputs.end(), stands) &&
           std::all_of(node.outputs.begin(), node.outputs.end(), stands);
  }

  // A slice or reshape that makes another part of the same value is a step between layouts, not an operator on whole
  // values.
  bool changes_layout(const Node& node) const {
    if (!ops::is_layout_step(node)) return false;
    const spmd::Placement *before = node.input(0) ? placement(node.input(0)) : nullptr,
                          *after = node.output() ? placement(node.output()) : nullptr;
    return before && after && before->name == after->name && *before->global.shape == *after->global.shape;
  }

  void check_node(const Node& node) {
    const ops::OpDef* op = ops::find_op(node.op_type, node.domain);
    if (!op || !op->rule || (node.domain == spmd::kLocalDomain && !ops::has_wide_sums(node))) return;
    std::deque<Value> values;
    const Node global = of_whole_values(node, values);
    ops::Rule rule;
    try {
      rule = op->rule(global);
    } catch (const Error& error) {
      // The attributes of a local form may not be valid for whole values.
      if (!op->localize)
        report(node, fmt::format("{} does not fit the whole values that its operands stand for: {}", node.label(),
                                 error.what()));
      return;
    }
    std::vector<std::vector<Slot>> along(rule.factors.size());
    if (!gather_slots(node, node.inputs, rule.operands, false, along)) return;
    if (!gather_slots(node, node.outputs, rule.results, true, along)) return;
    for (size_t f = 0; f < along.size(); ++f) {
      // A local form may have other attributes (fewer groups), and so another rule; dimensions that must be whole still
      // must.
      if ((must_be_whole(rule.factors[f]) || !op->localize) && !check_factor(node, rule.factors[f], along[f])) return;
    }
  }

  // A reshape moves nothing: its operand and its result are the same elements of the flattened tensor.
  void check_reshape(const Node& node) {
    const spmd::Placement *before = placement(node.input(0)), *after = placement(node.output());
    if (!before || !after || split_alike(flattened(before->sharding), flattened(after->sharding))) return;
    report(node, fmt::format("{} turns {} of '{}' into {} of '{}', which has other elements", node.label(),
                             before->sharding.str(mesh_), before->name, after->sharding.str(mesh_), after->name));
  }

  static DimSharding flattened(const Sharding& sharding) {
    DimSharding all;
    for (const DimSharding& dim : sharding.dims) all.parts.insert(all.parts.end(), dim.parts.begin(), dim.parts.end());
    return all;
  }

  // The node on whole values (kept in `values`), of which its operands and results are parts.
  Node of_whole_values(const Node& node, std::deque<Value>& values) const {
    Node global = node;
    for (auto* list : {&global.inputs, &global.outputs})
      for (Value*& value : *list) {
        if (!value) continue;
        values.push_back(*value);
        if (const spmd::Placement* placed = placement(value)) values.back().type = placed->global;
        value = &values.back();
      }
    return global;
  }

  // Collects dimensions by their factor. A dimension without a factor must be whole.
  bool gather_slots(const Node& node, const std::vector<Value*>& values,
                    const std::vector<std::vector<ops::DimFactors>>& dims, bool results,
                    std::vector<std::vector<Slot>>& along) {
    for (size_t v = 0; v < values.size() && v < dims.size(); ++v) {
      const spmd::Placement* placed = values[v] ? placement(values[v]) : nullptr;
      if (!placed) continue;
      for (size_t d = 0; d < dims[v].size() && d < placed->sharding.dims.size(); ++d) {
        Slot slot{values[v], d, &placed->sharding.dims[d], results, static_cast<int>(v)};
        if (dims[v][d].size() == 1) along[dims[v][d][0]].push_back(slot);
        if (dims[v][d].empty() && !results && slot.split->is_split() && !is_one(*slot.split))
          return misused(node, slot, "needs it whole");
      }
    }
    return true;
  }

  // Broadcast: a rank holds either the only element, and so all of the dimension, or no element.
  static bool is_one(const DimSharding& dim) { return dim.size().is(1); }

  bool check_factor(const Node& node, const ops::Factor& factor, const std::vector<Slot>& slots) {
    if (!must_be_whole(factor))
      return check_same(node, slots) && (!factor.makes_partial() || check_reduced(node, factor, slots));
    if (ops::traits_of(factor.kind).by_window && reads_own_part(factor, slots)) return true;
    for (const Slot& slot : slots)
      if (slot.split->is_split()) return misused(node, slot, "needs it whole");
    return true;
  }

  // Whether this operator cannot compute along a split factor; its local form may be another operator, which can.
  static bool must_be_whole(const ops::Factor& factor) {
    return !factor.can_be_split() || ops::traits_of(factor.kind).own_form;
  }

  // Equal sizes may have different names (Program::equal_extents), so only the axes are compared.
  static bool split_alike(const DimSharding& a, const DimSharding& b) {
    if (a.size() == b.size()) return same_layout({{a}, {}}, {{b}, {}});
    return join_axes(axes_of(a)) == join_axes(axes_of(b));
  }

  // Whether every rank's results read only its own part: all of it, or from where its first result begins to read.
  static bool reads_own_part(const ops::Factor& factor, const std::vector<Slot>& slots) {
    const auto result = std::find_if(slots.begin(), slots.end(), [](const Slot& slot) { return slot.in_result; });
    if (result == slots.end()) return false;
    const std::vector<AxisRef> axes = axes_of(*result->split);
    return std::all_of(slots.begin(), slots.end(), [&](const Slot& slot) {
      const DimSharding by_axes{{Part{slot.split->size(), axes}}};
      if (!same_layout({{*slot.split}}, {{by_axes}})) return false;
      const auto of_operand = factor.windows.find(slot.tensor);
      if (slot.in_result || of_operand == factor.windows.end()) return split_alike(*slot.split, *result->split);
      const ops::Window& window = of_operand->second;
      if (window.over != 1 || window.beyond != ops::Window::Beyond::padding) return false;
      const spmd::Halo halo(window, slot.split->size(), result->split->size(), axes);
      for (size_t m = 0; m < halo.held.size(); ++m) {
        if (halo.results[m].count().is(0) || (window.times == 1 && reads_all(halo, static_cast<int64_t>(m)))) continue;
        if (!always_equal(halo.held[m].begin, halo.results[m].begin * window.times) ||
            !never_negative(halo.read[m].begin - halo.held[m].begin) ||
            !never_negative(halo.held[m].end - halo.read[m].end))
          return false;
      }
      return true;
    });
  }

  static bool reads_all(const spmd::Halo& halo, int64_t member) {
    const auto m = static_cast<size_t>(member);
    return always_equal(halo.received(member), 0) && always_equal(halo.kept[m].count(), halo.held[m].count());
  }

  // All dimensions of one factor are split alike.
  bool check_same(const Node& node, const std::vector<Slot>& slots) {
    for (const Slot& slot : slots) {
      const Slot& first = slots.front();
      if (split_alike(*first.split, *slot.split)) continue;
      report(node, fmt::format("{} needs equal splits, but dimension {} of '{}' is {}, and dimension {} of '{}' is {}",
                               node.label(), first.dim, name(first), shown(first), slot.dim, name(slot), shown(slot)));
      return false;
    }
    return true;
  }

  // Every rank reduces its own elements, so the result is partial over the axes that split the dimension.
  bool check_reduced(const Node& node, const ops::Factor& factor, const std::vector<Slot>& slots) {
    if (slots.empty()) return true;
    for (const AxisRef& axis : axes_of(*slots.front().split))
      for (const Value* result : node.outputs) {
        if (!result) continue;
        const auto& partial = placement(result)->sharding.partial;
        bool stated = std::any_of(partial.begin(), partial.end(), [&](const PartialAxis& p) {
          return p.reduction == factor.reduction && p.axis.overlaps(axis);
        });
        if (stated) continue;
        report(node, fmt::format("{} reduces over dimension {} of '{}', which is split over {}, so its result is "
                                 "partial, but it is stated as {}",
                                 node.label(), slots.front().dim, name(slots.front()), axis.str(mesh_),
                                 placement(result)->sharding.str(mesh_)));
        return false;
      }
    return true;
  }

  bool misused(const Node& node, const Slot& slot, std::string_view why) {
    report(node,
           fmt::format("{} {}: dimension {} of '{}' is {}", node.label(), why, slot.dim, name(slot), shown(slot)));
    return false;
  }

  const std::string& name(const Slot& slot) const { return placement(slot.value)->name; }
  std::string shown(const Slot& slot) const { return Sharding{{*slot.split}, {}}.str(mesh_); }

  void report(const Node& node, std::string message) {
    report_.findings.push_back({"layout", std::move(message), {{rank_, node.label()}}});
  }

  const spmd::Program& program_;
  const Mesh& mesh_;
  int64_t rank_;
  Report& report_;
};

}  // namespace

void check_factors(const spmd::Program& program, int64_t rank, Report& report) {
  FactorCheck(program, rank, report).run();
}

}  // namespace tessera::proof
