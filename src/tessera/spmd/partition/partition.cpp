#include "tessera/spmd/partition/partition.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/ir/flow.h"
#include "tessera/spmd/decide/versions.h"
#include "tessera/spmd/decide/why.h"
#include "tessera/spmd/layout/equal_extents.h"
#include "tessera/spmd/partition/halo.h"
#include "tessera/spmd/reshard/messages.h"
#include "tessera/spmd/reshard/reshard.h"

namespace tessera::spmd {
namespace {

// Constants up to this many elements are copied whole into the program; larger ones are stored and sliced like states.
constexpr int64_t kSmallConstant = 64;

// One class, because every step reads and extends one record: the local values that stand for each global value so far.
// Local forms, layout changes and outputs ask it for a value in some layout, and add those that they make.
class Partitioner {
 public:
  Partitioner(const Graph& graph, const Layout& layout, const Decisions& decisions, const Mesh& mesh,
              const Hints& hints, const cost::Prices* prices)
      : source_(graph),
        layout_(layout),
        decisions_(decisions),
        costs_(mesh, hints, prices),
        flow_(flow::flow_of(graph)) {
    program_.mesh = mesh;
    program_.hints = hints;
    program_.graph = std::make_unique<Graph>();
    program_.graph->name = graph.name;
  }

  Program run() {
    for (const Value* input : source_.inputs) source(input);
    find_needed();
    for (size_t n = 0; n < layout_.nodes.size(); ++n)
      if (needed_.contains(layout_.nodes[n].node) && !moves_fetched(layout_.nodes[n].node))
        emit(layout_.nodes[n], decisions_.nodes[n]);
    for (const Value* output : source_.outputs) emit_output(output);
    for (const auto& value : source_.values())
      if (value->next)
        local().set_next(source(value.get()), laid_out(value->next, decisions_.sources.at(value.get()), "its state"));
    add_other_pieces();
    erase_dead(program_);
    flow::arrange_regions(local());
    verify(program_, "partition");
    return std::move(program_);
  }

 private:
  // Whether a node computes with an operand's elements; Shape, for example, needs only the extents.
  static bool computes_with(const Node& node, size_t operand) {
    const auto is_known = [](const Value* result) { return !result || result->content.has_value(); };
    return ops::reads_elements(node, operand) || !std::all_of(node.outputs.begin(), node.outputs.end(), is_known);
  }

  // Other nodes would leave messages that are sent but never received.
  void find_needed() {
    std::unordered_set<const Value*> leaving(source_.outputs.begin(), source_.outputs.end());
    for (const auto& value : source_.values())
      if (value->next) leaving.insert(value->next);
    for (size_t n = layout_.nodes.size(); n-- > 0;) {
      const Node* node = layout_.nodes[n].node;
      const auto is_needed = [&](const Value* result) {
        return result &&
               (leaving.contains(result) || std::any_of(result->uses.begin(), result->uses.end(), [&](const Use& use) {
                  return needed_.contains(use.node) && computes_with(*use.node, use.index);
                }));
      };
      if (node->outputs.empty() || std::any_of(node->outputs.begin(), node->outputs.end(), is_needed))
        needed_.insert(node);
    }
  }

  // A global value in the layouts that it has so far, the first as produced. A use at most this many fetches after
  // another shares what that one fetched: otherwise a rank would fetch it again while the first copy still exists
  // (bind's kUnderWay).
  static constexpr int kFetchedAhead = 4;

  // A value fetched from storage, and the number of fetches before its last use. Cells of a pipeline do not share it,
  // since they are put into another order.
  struct Fetched {
    Sharding layout;
    Value* value = nullptr;
    int last_use = 0;
    std::string cell = "";
  };

  struct Versions {
    std::vector<Sharding> layouts;
    std::vector<Value*> values;
    Fetched fetched;

    void add(const Sharding& layout, Value* value) {
      layouts.push_back(layout);
      values.push_back(value);
    }
  };

  Graph& local() { return *program_.graph; }

  void add_version(const Value* global, Value* value, const Sharding& sharding) {
    program_.placements[value] = {global->name, global->type, sharding};
    versions_[global].add(sharding, value);
  }

  // The local form of an input, state or constant, as it is stored.
  Value* source(const Value* global) {
    auto made = versions_.find(global);
    if (made != versions_.end()) return made->second.values.front();
    bool small = global->kind == ValueKind::constant && global->data.count() <= kSmallConstant;
    bool known = small || global->kind == ValueKind::expression;
    auto stored = decisions_.sources.find(global);
    Sharding sharding =
        known || stored == decisions_.sources.end() ? Sharding::replicated(global->shape()) : stored->second;
    TensorType type{global->dtype(), local_shape(sharding, program_.mesh)};
    Value* value = nullptr;
    if (global->kind == ValueKind::input) {
      value = local().add_input(global->name, type);
      program_.inputs.push_back({global->name, value});
    } else if (small) {
      value = local().add_constant(global->name, global->data);
      value->content = global->content;
    } else if (global->kind == ValueKind::expression) {
      value = expression(global);
    } else {
      value = local().add_value(global->name, ValueKind::state, type);
      value->changing = global->changing;
      program_.initial[value] = global->data;
    }
    value->extra = global->extra;
    add_version(global, value, sharding);
    program_.placements[value].origin = global->origin;
    return value;
  }

  // A state that changes is read and set as a whole, so a program that uses one of its pieces also has the others.
  void add_other_pieces() {
    std::set<std::string_view> used;
    for (const auto& [global, versions] : versions_)
      if (global->changing && global->origin) used.insert(global->origin->name);
    for (const auto& value : source_.values())
      if (value->changing && value->origin && used.contains(value->origin->name)) source(value.get());
  }

  // A movement (a weight's transpose) of what uses fetch from storage: each use fetches and moves it anew. Not if there
  // are branches or loops, outside of which no node sees what is moved within.
  bool moves_fetched(const Node* node) const {
    if (layout_.of(node).moves < ops::Moves::all || !flow_.regions.empty()) return false;
    const Value* from = node->inputs[0];
    return decisions_.fetched.contains(from) || (from->producer && moves_fetched(from->producer));
  }

  void move_anew(const Value* global) {
    if (const auto made = versions_.find(global); made != versions_.end()) {
      Fetched& last = made->second.fetched;
      const bool is_recent = fetches_ - last.last_use <= kFetchedAhead && last.cell == cell_;
      last.last_use = fetches_;
      if (is_recent) return;
      versions_.erase(made);
    }
    emit(layout_.of(global->producer), decisions_.nodes[layout_.index_of(global->producer)]);
    Fetched& fetched = versions_.at(global).fetched;
    fetched.last_use = fetches_;
    fetched.cell = cell_;
  }

  // A version of a global value in the wanted layout: an existing one, or the cheapest reshard of one.
  Value* laid_out(const Value* global, const Sharding& wanted, const std::string& consumer,
                  const std::function<std::string(const Sharding& from)>& reason = nullptr) {
    if (!global->producer)
      source(global);
    else if (moves_fetched(global->producer))
      move_anew(global);
    Versions& versions = versions_.at(global);
    for (size_t v = 0; v < versions.layouts.size(); ++v)
      if (same_layout(versions.layouts[v], wanted)) return versions.values[v];
    if (const NodeDecision* form = repeated(global, wanted)) {
      emit(layout_.of(global->producer), *form);
      return versions.values.back();
    }
    const auto route = cheapest_route(versions.layouts, wanted,
                                      {global->dtype(), versions.values.front()->dtype() != global->dtype()}, costs_);
    check(route.has_value(), fmt::format("'{}' has a version to reshard", global->name));
    const bool once = decisions_.fetched.contains(global);
    if (Fetched& last = versions.fetched; once && last.value && same_layout(last.layout, wanted) &&
                                          last.cell == cell_ && fetches_ - last.last_use <= kFetchedAhead) {
      last.last_use = fetches_;
      return last.value;
    }
    const Sharding& from = versions.layouts[route->from];
    ReshardRecord record{global->name, consumer, from, wanted, {}, 0, reason ? reason(from) : ""};
    Value* value = versions.values[route->from];
    for (const ReshardStep& step : route->steps) {
      if (step.kind == ReshardKind::forget) {
        if (!once) versions.add(step.after, value);
        continue;
      }
      bool was_partial = value->dtype() != global->dtype();
      value = emit_reshard(program_, value, step, global->type, global->name);
      record.steps.push_back(step.str(program_.mesh));
      record.bytes = record.bytes + bytes_received(step, value->dtype(), program_.mesh);
      if (was_partial && !step.after.is_partial()) value = rounded(value, global->dtype());
      program_.placements[value] = {global->name, global->type, step.after};
      if (!once) versions.add(step.after, value);
    }
    if (once && !record.steps.empty()) versions.fetched = {wanted, value, ++fetches_, cell_};
    if (!record.steps.empty()) program_.reshards.push_back(std::move(record));
    return value;
  }

  // The decision that makes the producer compute a value again in this layout; null if there is none.
  const NodeDecision* repeated(const Value* global, const Sharding& wanted) const {
    const auto forms = decisions_.repeated.find(global);
    if (forms == decisions_.repeated.end()) return nullptr;
    const auto form = std::find_if(forms->second.begin(), forms->second.end(), [&](const NodeDecision& decision) {
      return same_layout(decision.results[0], wanted);
    });
    return form == forms->second.end() ? nullptr : &*form;
  }

  // Float32 sums of 16-bit operands are converted to the value's type once they are reduced.
  Value* rounded(Value* value, DType dtype) {
    Node* cast = local().add_node("Cast", {value}, {value->name});
    cast->set("to", static_cast<int64_t>(dtype));
    cast->outputs[0]->type = {dtype, value->type.shape};
    return cast->outputs[0];
  }

  // A contraction that is split over ranks yields float32 partial sums of 16-bit operands, unless they are to be
  // narrow; partial sums that are float32 already stay so through what keeps them.
  static bool yields_wide(const NodeLayout& node, const NodeDecision& decision, size_t result,
                          const std::vector<Value*>& operands) {
    const Value* value = node.node->outputs[result];
    if (!value || !is_float(value->dtype()) || bits_of(value->dtype()) != 16) return false;
    if (!decision.results[result].is_partial()) return false;
    if (node.wide_sums && is_partial_sum(decision.results[result])) return true;
    return std::any_of(operands.begin(), operands.end(),
                       [](const Value* operand) { return operand && operand->dtype() == DType::float32; });
  }

  // The value on the first rank along the axes, zeros on the others: a term of partial sums. Selected rather than
  // multiplied, since infinity times zero is not zero.
  Value* held_by_first(Value* value, const std::vector<AxisRef>& axes) {
    Expr place = 0;
    for (const AxisRef& axis : axes) place = place + index_along(axis, program_.mesh);
    return ops::on_first(local(), value, place);
  }

  Value* operand(const NodeLayout& layout, const NodeDecision& decision, size_t index) {
    const Value* global = layout.node->inputs[index];
    const Sharding& wanted = decision.operands[index];
    if (!global || !computes_with(*layout.node, index)) return nullptr;
    // An expression whose elements are data along a factor is sliced like any other operand.
    if (global->kind == ValueKind::expression && wanted.is_whole()) return expression(global);
    return laid_out(global, wanted, layout.node->label(),
                    [&](const Sharding& from) { return why_gathered(layout, decision, index, from, program_.mesh); });
  }

  Value* expression(const Value* global) {
    Value* value = local().add_expression(global->name, *global->content, global->rank() == 0);
    value->type.dtype = global->dtype();
    return value;
  }

  void require_equal_extents(const NodeLayout& layout) {
    for (ExtentEquality& equality : equal_extents_of(*layout.node, layout.rule)) {
      auto known = std::find_if(program_.equal_extents.begin(), program_.equal_extents.end(),
                                [&](const ExtentEquality& e) { return e.a == equality.a && e.b == equality.b; });
      if (known == program_.equal_extents.end())
        program_.equal_extents.push_back(std::move(equality));
      else
        known->broadcasts &= equality.broadcasts;
    }
  }

  // A value inside a local form that ranks exchange: a global value like any other, in the layout `before`. Without a
  // suffix it is the first result itself.
  Value* exchanged(Value* part, const NodeLayout& layout, std::string_view suffix, const Sharding& before,
                   const Sharding& after, const std::vector<ReshardStep>& steps) {
    TensorType type{part->dtype(), Shape()};
    for (const DimSharding& dim : after.dims) type.shape->push_back(dim.size());
    std::string name = layout.node->outputs[first_result(layout)]->name;
    if (!suffix.empty()) name += fmt::format(".{}", suffix);
    ReshardRecord record{name, layout.node->label(), before, after, {}, 0, ""};
    program_.placements[part] = {name, type, before};
    for (const ReshardStep& step : steps) {
      record.steps.push_back(step.str(program_.mesh));
      record.bytes = record.bytes + bytes_received(step, type.dtype, program_.mesh);
      part = emit_reshard(program_, part, step, type, name);
    }
    if (!steps.empty()) program_.reshards.push_back(std::move(record));
    return part;
  }

  // Reduces, over some factors, what ranks have computed from their parts.
  Value* reduced(Value* part, const NodeLayout& layout, const NodeDecision& decision, const std::vector<int>& factors,
                 Reduction reduction, std::string_view suffix) {
    const size_t result = first_result(layout);
    ReshardStep step{ReshardKind::all_reduce, {}, reduction};
    step.after = without_factors(decision.results[result], layout, factors);
    step.after.partial.clear();
    step.before = step.after;
    step.axes = axes_along(layout, decision.axes, factors);
    for (const AxisRef& axis : step.axes) step.before.partial.push_back({axis, reduction});
    step.axes = join_axes(step.axes);
    return exchanged(part, layout, suffix, step.before, step.after, {step});
  }

  // The same, gathered along one dimension.
  Value* gathered(Value* part, const NodeLayout& layout, const NodeDecision& decision, const std::vector<int>& factors,
                  size_t dim, const Expr& blocks, const Expr& unit, std::string_view suffix) {
    Sharding before = without_factors(decision.results[first_result(layout)], layout, factors);
    if (part->rank() > before.dims.size()) before.dims.insert(before.dims.begin() + static_cast<ptrdiff_t>(dim), {{}});
    before.dims[dim].parts = {Part{blocks, {}}};
    if (!unit.is(1)) before.dims[dim].parts.push_back(Part{unit, {}});
    const Sharding after = before;
    before.dims[dim].parts[0].axes = axes_along(layout, decision.axes, factors);
    return exchanged(part, layout, suffix, before, after, costs_.plan(before, after, part->dtype()));
  }

  // A value inside a local form: an operand's part, extended by elements of other ranks that this rank's results read.
  ops::Localizer::Widened widened_along(Value* value, const NodeLayout& layout, const NodeDecision& decision,
                                        size_t operand, size_t dim, Value* fill) {
    const Value* global = layout.node->inputs[operand];
    const ops::Factor& factor = layout.rule.factors[layout.rule.operands[operand][dim].front()];
    const Sharding& sharding = decision.operands[operand];
    const std::vector<AxisRef>& axes = sharding.dims[dim].parts.front().axes;
    const Halo halo(factor.windows.at(static_cast<int>(operand)), global->shape()[dim], factor.size, axes);
    const Expr me = member_along(axes, program_.mesh);
    std::vector<Expr> begins, before, after, received;
    for (int64_t m = 0; m < halo.members(); ++m) {
      begins.push_back(halo.read[static_cast<size_t>(m)].begin);
      before.push_back(halo.before(m));
      after.push_back(halo.after(m));
      received.push_back(halo.received(m));
    }
    std::vector<std::string> names;
    for (const AxisRef& axis : join_axes(axes)) names.push_back(axis.str(program_.mesh));
    Expr bytes = by_member(me, received);
    for (size_t d = 0; d < value->rank(); ++d)
      if (d != dim) bytes = bytes * value->shape()[d];
    bytes = ceildiv(bytes * bits_of(value->dtype()), 8);
    if (!std::all_of(received.begin(), received.end(), [](const Expr& count) { return count.is(0); }))
      program_.reshards.push_back(
          {global->name,
           layout.node->label(),
           sharding,
           sharding,
           {fmt::format("Halo {}", fmt::join(names, ","))},
           bytes,
           fmt::format("its results read dimension {} beyond the part that a rank holds", dim)});
    return {widened(program_, value, halo, {global->name, axes, dim, fill}), by_member(me, begins),
            by_member(me, before), by_member(me, after)};
  }

  // Local nodes have the seat of the node that they are made for.
  void emit(const NodeLayout& layout, const NodeDecision& decision) {
    const size_t earlier = local().nodes().size();
    const std::string outer = std::exchange(cell_, cell_.empty() ? layout.node->seat.cell() : cell_);
    emit_forms(layout, decision);
    cell_ = outer;
    for (size_t n = earlier; n < local().nodes().size(); ++n) local().nodes()[n]->seat = layout.node->seat;
  }

  void emit_forms(const NodeLayout& layout, const NodeDecision& decision) {
    const Node& node = *layout.node;
    require_equal_extents(layout);
    ops::Localizer localizer{.node = node, .rule = layout.rule, .graph = local()};
    if (const int region = flow_.of(&node); region >= 0 && flow_.regions[region].begin != &node)
      localizer.around = versions_.at(flow_.regions[region].begin->outputs[0]).values.front();
    localizer.widen = [&](Value* value, size_t operand, size_t dim, Value* fill) {
      return widened_along(value, layout, decision, operand, dim, fill);
    };
    localizer.reduce = [&](Value* part, const std::vector<int>& factors, Reduction reduction, std::string_view name) {
      return reduced(part, layout, decision, factors, reduction, name);
    };
    localizer.gather = [&](Value* part, const std::vector<int>& factors, size_t dim, const Expr& blocks,
                           const Expr& unit, std::string_view name) {
      return gathered(part, layout, decision, factors, dim, blocks, unit, name);
    };
    localizer.share = [&](const std::vector<int>& factors, const Expr& blocks) {
      return local_extent(Part{blocks, axes_along(layout, decision.axes, factors)}, program_.mesh);
    };
    for (size_t t = 0; t < node.inputs.size(); ++t) localizer.inputs.push_back(operand(layout, decision, t));
    for (const HeldTerm& term : decision.held)
      localizer.inputs[term.operand] = held_by_first(localizer.inputs[term.operand], term.along);
    for (size_t t = 0; t < node.outputs.size(); ++t)
      localizer.outputs.push_back(node.outputs[t] ? TensorType{node.outputs[t]->dtype(), shape_of(decision.results[t])}
                                                  : TensorType{});
    for (size_t f = 0; f < layout.rule.factors.size(); ++f) {
      Expr extent = 1, offset = 0, minor = 1;
      bool split = false, any = false;
      std::vector<ops::Localizer::Piece> pieces;
      for (size_t s = layout.subfactors.size(); s-- > 0;) {
        const SubFactor& sub = layout.subfactors[s];
        if (sub.factor != static_cast<int>(f)) continue;
        any = true;
        pieces.push_back(piece_of(decision, s, sub.size));
        extent = extent * pieces.back().extent;
        if (sub.index == 0) offset = pieces.back().offset * minor;
        minor = minor * sub.size;
        split |= !decision.axes[s].empty();
      }
      if (!any) pieces.push_back({layout.rule.factors[f].size, 0, layout.rule.factors[f].size});
      std::reverse(pieces.begin(), pieces.end());
      localizer.pieces.push_back(std::move(pieces));
      localizer.extents.push_back(any ? extent : layout.rule.factors[f].size);
      localizer.offsets.push_back(offset);
      localizer.split.push_back(split);
      const std::vector<AxisRef> over = axes_along(layout, decision.axes, {static_cast<int>(f)});
      Expr place = 0;
      for (const AxisRef& axis : over) place = place * axis.size + index_along(axis, program_.mesh);
      localizer.places.push_back(place);
      localizer.ranks.push_back(ranks_of(over));
    }
    for (size_t t = 0; t < node.outputs.size(); ++t)
      if (yields_wide(layout, decision, t, localizer.inputs)) localizer.outputs[t].dtype = DType::float32;
    ops::LocalizeFn localize = ops::op_of(node).localize;
    std::vector<Value*> results = localize ? localize(localizer) : localizer.same();
    check(results.size() == node.outputs.size(), fmt::format("{} has all its local results", node.label()));
    for (size_t t = 0; t < results.size(); ++t)
      if (node.outputs[t]) add_version(node.outputs[t], results[t], decision.results[t]);
  }

  // What a rank holds in a layout of some decision. Alike nodes share their decisions' layouts, so this is computed
  // once for all of them.
  const Shape& shape_of(const Sharding& sharding) {
    const auto [known, fresh] = shapes_.try_emplace(sharding.dims.identity());
    if (fresh) known->second = local_shape(sharding, program_.mesh);
    return known->second;
  }

  // A rank's piece of a subfactor, computed once for alike nodes, too.
  ops::Localizer::Piece piece_of(const NodeDecision& decision, size_t subfactor, const Expr& size) {
    const auto [known, fresh] = pieces_.try_emplace({decision.axes.identity(), subfactor});
    ops::Localizer::Piece& piece = known->second;
    if (!fresh && piece.size == size) return piece;
    const Part part{size, decision.axes[subfactor]};
    return piece = {size, local_offset(part, program_.mesh), local_extent(part, program_.mesh)};
  }

  void emit_output(const Value* global) {
    Value* value = laid_out(global, decisions_.outputs.at(global), "the output");
    // The output's value has the output's name; an earlier version of it is renamed.
    if (value->name != global->name && value->kind == ValueKind::result && !is_port(value)) {
      if (Value* other = local().find(global->name); other && other->kind == ValueKind::result && !is_port(other))
        local().rename(other, global->name + ".local");
      if (!local().find(global->name)) local().rename(value, global->name);
    }
    local().outputs.push_back(value);
    program_.outputs.push_back({global->name, value});
  }

  bool is_port(const Value* value) {
    return std::any_of(program_.outputs.begin(), program_.outputs.end(),
                       [&](const Port& port) { return port.value == value; });
  }

  const Graph& source_;
  const Layout& layout_;
  const Decisions& decisions_;
  const Costs costs_;
  const flow::Flow flow_;                   ///< of the global graph
  std::unordered_set<const Node*> needed_;  ///< nodes of the global graph that its outputs and states need
  Program program_;
  std::unordered_map<const Value*, Versions> versions_;
  std::string cell_;                                                        ///< that nodes are made for; "": none
  int fetches_ = 0;                                                         // from storage, so far
  std::unordered_map<const void*, Shape> shapes_;                           // by dimensions of a decision's layout
  std::map<std::pair<const void*, size_t>, ops::Localizer::Piece> pieces_;  // by a decision's axes, and subfactor
};

}  // namespace

Program partition(const Graph& graph, const Layout& layout, const Decisions& decisions, const Mesh& mesh,
                  const Hints& hints, const cost::Prices* prices) {
  return Partitioner(graph, layout, decisions, mesh, hints, prices).run();
}

}  // namespace tessera::spmd
