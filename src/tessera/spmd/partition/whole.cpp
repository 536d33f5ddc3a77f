#include "tessera/spmd/partition/whole.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/ir/always_equal.h"
#include "tessera/ir/kept_nodes.h"
#include "tessera/mesh/axis_bounds.h"
#include "tessera/mesh/axis_use.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/op.h"
#include "tessera/spmd/collective_attributes.h"
#include "tessera/spmd/partition/init.h"
#include "tessera/spmd/reshard/reshard.h"

namespace tessera::spmd {
namespace {

class WholeEdgeMaker {
 public:
  WholeEdgeMaker(const Program& program, const WholeEdge& edge)
      : program_(in_one_graph(program)), derived_(derived_states(program)), edge_(edge) {
    result_.mesh = program.mesh;
    result_.hints = program.hints;
    result_.equal_extents = program.equal_extents;
    result_.reshards = program.reshards;
    result_.graph = std::make_unique<Graph>();
    result_.graph->name = program.graph->name;
  }

  Program run() {
    for (const Port& port : program_.inputs) result_.inputs.push_back({port.name, source(*port.value, edge_.ports)});
    for (const auto& value : program_.graph->values())
      if (!value->producer && value->kind != ValueKind::input)
        source(*value, value->kind == ValueKind::state && edge_.states);
    for (const auto& [value, whole] : sliced_) known_[value] = laid_out(whole, program_.placement(value).sharding);
    for (const auto& node : program_.graph->nodes()) copy(*node);
    for (const auto& value : program_.graph->values())
      if (value->next) step(*value);
    for (const Port& port : program_.outputs) {
      Value* value = known_.at(port.value);
      if (edge_.ports) {
        value = laid_out(value, Sharding::replicated(*program_.placement(port.value).global.shape));
        name_output(value, port.name);
      }
      graph().outputs.push_back(value);
      result_.outputs.push_back({port.name, value});
    }
    graph().verify("write");
    std::vector<std::string> once;
    for (const std::string& name : derived_) once.push_back(known_.at(program_.graph->find(name))->name);
    move_to_init(result_, once);
    return std::move(result_);
  }

 private:
  Graph& graph() { return *result_.graph; }

  // An input, state, constant or expression; if it becomes whole, `known_` later has its slice.
  Value* source(const Value& value, bool whole) {
    auto placed = program_.placements.find(&value);
    whole = whole && placed != program_.placements.end() && !placed->second.sharding.is_replicated();
    TensorType type = whole ? placed->second.global : value.type;
    Value* made = nullptr;
    if (value.kind == ValueKind::input) {
      made = graph().add_input(value.name, type);
    } else if (value.kind == ValueKind::constant) {
      made = graph().add_constant(value.name, value.data);
      made->content = value.content;
    } else if (value.kind == ValueKind::expression) {
      made = graph().add_expression(value.name, *value.content, value.rank() == 0);
      made->type.dtype = value.dtype();
    } else {
      made = graph().add_value(value.name, value.kind, type);
      made->changing = value.changing;
      if (auto data = program_.initial.find(&value); data != program_.initial.end())
        result_.initial[made] = data->second;
    }
    check(made->name == value.name, fmt::format("'{}' keeps its name", value.name));
    if (placed != program_.placements.end()) result_.placements[made] = placed->second;
    if (whole) {
      result_.placements[made].sharding = Sharding::replicated(*type.shape);
      sliced_.emplace_back(&value, made);
    }
    return known_[&value] = made;
  }

  // A state that is whole has a whole next value.
  void step(const Value& state) {
    const auto cut =
        std::find_if(sliced_.begin(), sliced_.end(), [&](const auto& entry) { return entry.first == &state; });
    Value* next = known_.at(state.next);
    if (cut == sliced_.end()) return graph().set_next(known_.at(&state), next);
    graph().set_next(cut->second, laid_out(next, result_.placement(cut->second).sharding));
  }

  Value* laid_out(Value* value, const Sharding& wanted) {
    const Placement from = result_.placement(value);
    for (const ReshardStep& step : plan_reshard(from.sharding, wanted, from.global.dtype))
      value = emit_reshard(result_, value, step, from.global, from.name);
    return value;
  }

  // The output has the model's name for it; the part that it was gathered from is renamed.
  void name_output(Value* value, const std::string& name) {
    if (value->name == name || value->kind != ValueKind::result || graph().is_output(value)) return;
    if (Value* other = graph().find(name)) {
      if (other->kind != ValueKind::result || graph().is_output(other)) return;
      graph().rename(other, name + ".local");
    }
    graph().rename(value, name);
  }

  void copy(const Node& node) {
    auto made = std::make_unique<Node>(node);
    for (Value*& operand : made->inputs)
      if (operand) operand = known_.at(operand);
    for (Value*& result : made->outputs) {
      if (!result) continue;
      const Value* was = result;
      result = known_[was] = graph().add_value(was->name, ValueKind::result, was->type);
      result->content = was->content;
      if (auto placed = program_.placements.find(was); placed != program_.placements.end())
        result_.placements[result] = placed->second;
    }
    graph().adopt_node(std::move(made));
  }

  const Program program_;
  const std::vector<std::string> derived_;
  const WholeEdge& edge_;
  Program result_;
  std::map<const Value*, Value*> known_;
  std::vector<std::pair<const Value*, Value*>> sliced_;
};

// The state or input that a value is a slice of: reached through slices and reshapes with parameters that do not depend
// on data.
Value* origin_of(Value* value) {
  while (value->producer) {
    const Node& node = *value->producer;
    if (!ops::is_layout_step(node)) return nullptr;
    for (size_t i = 1; i < node.inputs.size(); ++i)
      if (!ops::content_of(node.inputs[i])) return nullptr;
    value = node.inputs[0];
  }
  return value->kind == ValueKind::state || value->kind == ValueKind::input ? value : nullptr;
}

// The slices and reshapes between an origin and a slice of it, the last first.
std::vector<const Node*> layout_steps_between(const Value* slice, const Value* origin) {
  std::vector<const Node*> steps;
  for (const Value* value = slice; value != origin; value = steps.back()->inputs[0]) steps.push_back(value->producer);
  return steps;
}

// Whether nothing on the way from the origin to the slice has other uses.
bool is_only_use(const Graph& graph, const Value* slice, const Value* origin) {
  const auto steps = layout_steps_between(slice, origin);
  return std::all_of(steps.begin(), steps.end(), [&](const Node* node) {
    const Value* value = node->inputs[0];
    return value->uses.size() == 1 && !graph.is_output(value);
  });
}

// A slice or reshape, and the contents of its parameters (starts, ends, a shape), as a rank sees them.
struct Cut {
  std::string op_type;
  const Mesh* mesh;
  std::vector<std::vector<Expr>> parameters;

  Cut(const Node& node, const Mesh& of, std::optional<int64_t> rank) : op_type(node.op_type), mesh(&of) {
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      const auto content = ops::content_of(node.inputs[i]);
      check(content.has_value(), "the parameters of a cut are known");
      parameters.push_back(*content);
      for (Expr& element : parameters.back())
        element = rank ? bind_rank(element, of, of.coordinates(*rank)) : with_axis_bounds(element, of);
    }
  }
  bool operator==(const Cut& other) const {
    auto same = [](const std::vector<Expr>& a, const std::vector<Expr>& b) {
      return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                        [](const Expr& x, const Expr& y) { return always_equal(x, y); });
    };
    return op_type == other.op_type &&
           std::equal(parameters.begin(), parameters.end(), other.parameters.begin(), other.parameters.end(), same);
  }
  std::string shown(const std::vector<Expr>& content) const {
    Shape plain;
    for (const Expr& element : content) plain.push_back(without_axis_bounds(element, *mesh));
    return to_string(plain);
  }
  /// "Slice [4*@tp] [4*@tp + 4] [0]"
  std::string str() const {
    std::string text = op_type;
    for (const auto& content : parameters) text += " " + shown(content);
    return text;
  }
};

std::string cuts_text(const std::vector<Cut>& cuts) {
  std::vector<std::string> texts;
  for (const Cut& cut : cuts) texts.push_back(cut.str());
  return texts.empty() ? "nothing" : fmt::format("{}", fmt::join(texts, ", "));
}

// Whether two placements are of the same value.
bool are_of_one(const Placement& a, const Placement& b) {
  return a.name == b.name && *a.global.shape == *b.global.shape;
}

// The nodes that lead from one layout of a value to another.
std::vector<Cut> cuts_between(const Mesh& mesh, const Value* from, const Placement& whole, const Placement& part,
                              std::optional<int64_t> rank) {
  Program plain;
  plain.mesh = mesh;
  plain.graph = std::make_unique<Graph>();
  // In terms of the layout, as when the program was made.
  Value* const source = plain.graph->add_input(from->name, {from->dtype(), local_shape(whole.sharding, mesh)});
  Value* last = source;
  for (const ReshardStep& step : plan_reshard(whole.sharding, part.sharding, part.global.dtype))
    last = emit_reshard(plain, last, step, part.global, part.name);
  std::vector<Cut> all;
  for (const Node* node : layout_steps_between(last, source)) all.insert(all.begin(), Cut(*node, mesh, rank));
  return all;
}

// Nodes and placements state the same thing twice: between two values with placements, the nodes must be those that
// lead from the first placement to the second.
void require_cut_as_placed(const Program& program, const Value* slice, const Value* origin,
                           std::optional<int64_t> rank) {
  const Placement& all = program.placement(origin);
  std::vector<Cut> stated;
  const Value* end = slice;
  for (const Node* node : layout_steps_between(slice, origin)) {
    stated.insert(stated.begin(), Cut(*node, program.mesh, rank));
    const Value* begin = node->inputs[0];
    auto placed = program.placements.find(begin);
    if (placed == program.placements.end() || !are_of_one(placed->second, all)) continue;
    const Placement &whole = placed->second, &part = program.placement(end);
    const std::vector<Cut> expected = cuts_between(program.mesh, begin, whole, part, rank);
    if (stated != expected)
      fail("program",
           "'{}' is cut from '{}' by {}, but its layout is {}, which is cut from {} by {}; write the program again",
           end->name, begin->name, cuts_text(stated), part.sharding.str(program.mesh), whole.sharding.str(program.mesh),
           cuts_text(expected));
    stated.clear();
    end = begin;
  }
}

// Whether nodes have the same operator and attributes, apart from the name of the value that moves, which only
// communication states.
bool same_attributes(const Node& a, const Node& b) {
  if (a.domain != b.domain || a.op_type != b.op_type) return false;
  if (!communication_of(a)) return true;
  const CollectiveAttributes one = read_collective(a), other = read_collective(b);
  return one.axes == other.axes && one.dim == other.dim && one.split_dim == other.split_dim &&
         one.concat_dim == other.concat_dim && one.reduction == other.reduction && one.root == other.root &&
         one.targets == other.targets;
}

bool same_change(const Node& a, const Node& b, const Mesh& mesh, std::optional<int64_t> rank) {
  const auto has_known_parameters = [](const Node& node) {
    return std::all_of(node.inputs.begin() + std::min<ptrdiff_t>(1, std::ssize(node.inputs)), node.inputs.end(),
                       [](const Value* value) { return value && ops::content_of(value); });
  };
  return same_attributes(a, b) && has_known_parameters(a) && has_known_parameters(b) &&
         Cut(a, mesh, rank) == Cut(b, mesh, rank);
}

/// A shard that a rank has of a state's next value, and the nodes that gather the whole from it.
struct GatheredNext {
  Value* shard = nullptr;
  std::vector<const Value*> gathered;  ///< results on the way to the whole
};

// Null unless the next value is made by exactly the nodes that gather shards of that layout, and these serve it alone.
std::optional<GatheredNext> gathered_next(const Program& program, const Value& state, const Placement& shard,
                                          std::optional<int64_t> rank) {
  const Shape wanted = local_shape(shard.sharding, program.mesh);
  Program plain;
  plain.mesh = program.mesh;
  plain.graph = std::make_unique<Graph>();
  Value* last = plain.graph->add_input("shard", {state.dtype(), wanted});
  for (const ReshardStep& step : plan_reshard(shard.sharding, Sharding::replicated(*shard.global.shape), state.dtype()))
    last = emit_reshard(plain, last, step, shard.global, shard.name);
  GatheredNext found{state.next, {}};
  const auto& nodes = plain.graph->nodes();
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    const Node* made = found.shard->producer;
    if (found.shard->uses.size() != (node == nodes.rbegin() ? 0u : 1u) || program.graph->is_output(found.shard) ||
        !made || made->inputs.empty() || !made->inputs[0] || !same_change(*made, **node, program.mesh, rank))
      return std::nullopt;
    found.gathered.push_back(found.shard);
    found.shard = made->inputs[0];
  }
  if (!found.shard->has_shape() || found.shard->rank() != wanted.size()) return std::nullopt;
  for (size_t d = 0; d < wanted.size(); ++d) {
    const auto seen = [&](const Expr& extent) {
      return rank ? bind_rank(extent, program.mesh, program.mesh.coordinates(*rank))
                  : with_axis_bounds(extent, program.mesh);
    };
    if (!always_equal(seen(found.shard->shape()[d]), seen(wanted[d]))) return std::nullopt;
  }
  return found;
}

// The axes over which a cut differs among ranks.
std::vector<AxisRef> axes_of(const Node& slice, const Mesh& mesh) {
  std::vector<Expr> parameters;
  for (size_t i = 1; i < slice.inputs.size(); ++i)
    if (const auto content = ops::content_of(slice.inputs[i]))
      parameters.insert(parameters.end(), content->begin(), content->end());
  std::vector<AxisRef> axes;
  for (size_t axis : mentioned_axes(parameters, mesh))
    if (mesh.axes()[axis].size > 1) axes.push_back(AxisRef::whole(mesh.axes()[axis]));
  return axes;
}

// A cut by indices along axes determines its layout, even if the file does not state it.
void place_cuts(Program& program) {
  for (const auto& node : program.graph->nodes()) {
    Value* result = node->output();
    if (!node->is("Slice") || program.placements.contains(result) || !origin_of(result)) continue;
    const auto placed = program.placements.find(node->input(0));
    if (placed == program.placements.end()) continue;
    const Placement whole = placed->second;
    std::vector<AxisRef> axes = axes_of(*node, program.mesh);
    const auto is_used = [&](const AxisRef& axis) { return whole.sharding.uses(axis); };
    if (axes.empty() || std::any_of(axes.begin(), axes.end(), is_used)) continue;
    const Cut stated(*node, program.mesh, std::nullopt);
    std::sort(axes.begin(), axes.end());
    do {
      for (size_t dim = 0; dim < whole.sharding.dims.size() && !program.placements.contains(result); ++dim) {
        Placement part = whole;
        if (part.sharding.dims[dim].is_split()) continue;
        part.sharding.dims[dim].parts.back().axes = axes;
        const auto cuts = cuts_between(program.mesh, node->input(0), whole, part, std::nullopt);
        if (cuts.size() == 1 && cuts[0] == stated) program.placements[result] = std::move(part);
      }
    } while (!program.placements.contains(result) && std::next_permutation(axes.begin(), axes.end()));
  }
}

}  // namespace

Program with_whole_edge(const Program& program, const WholeEdge& edge) {
  return WholeEdgeMaker(program, edge).run();
}

void take_slices_only(Program& program, std::optional<int64_t> rank) {
  Graph& graph = *program.graph;
  if (!rank) place_cuts(program);
  // Each origin's shards, in the order of the graph, which is the same in all processes.
  std::vector<std::pair<Value*, std::vector<Value*>>> slices;
  std::map<const Value*, size_t> known;
  for (const auto& node : graph.nodes())
    for (Value* result : node->outputs) {
      auto placed = result ? program.placements.find(result) : program.placements.end();
      if (placed == program.placements.end()) continue;
      Value* origin = origin_of(result);
      auto whole = origin ? program.placements.find(origin) : program.placements.end();
      if (whole == program.placements.end() || !whole->second.sharding.is_replicated()) continue;
      const Placement& shard = placed->second;
      if (!are_of_one(shard, whole->second)) continue;
      if (shard.sharding.is_partial()) continue;  // a slice is never partial
      if (known.emplace(origin, slices.size()).second) slices.emplace_back(origin, std::vector<Value*>());
      slices[known.at(origin)].second.push_back(result);
    }
  std::set<const Value*> spare;  // nodes that gather next values that are not needed whole
  for (auto& [origin, shards] : slices) {
    // Takes the innermost of nested slices.
    auto found = std::find_if(shards.rbegin(), shards.rend(), [&graph, from = origin](const Value* shard) {
      return !graph.is_output(shard) && is_only_use(graph, shard, from);
    });
    if (found == shards.rend()) continue;
    Value* shard = *found;
    require_cut_as_placed(program, shard, origin, rank);
    std::optional<GatheredNext> next;
    if (origin->next) {
      next = gathered_next(program, *origin, program.placement(shard), rank);
      if (!next) continue;  // its next value is computed whole
    }
    Value* taken = graph.add_value(shard->name, origin->kind, shard->type);
    taken->changing = origin->changing;
    graph.replace_uses(shard, taken);
    program.placements[taken] = program.placement(shard);
    program.placements[taken].origin = program.placement(origin).origin;
    if (next) {
      graph.set_next(origin, nullptr);
      graph.set_next(taken, next->shard);
      spare.insert(next->gathered.begin(), next->gathered.end());
    }
    if (auto data = program.initial.find(origin); data != program.initial.end()) {
      program.initial[taken] = data->second;
      program.initial.erase(origin);
    }
    for (Port& port : program.inputs)
      if (port.value == origin) port.value = taken;
    std::replace(graph.inputs.begin(), graph.inputs.end(), origin, taken);
  }
  const KeptNodes kept(graph,
                       [&](const Node& node) { return node.domain == kCommDomain && !spare.contains(node.output()); });
  erase_dead(program, true);
}

}  // namespace tessera::spmd
