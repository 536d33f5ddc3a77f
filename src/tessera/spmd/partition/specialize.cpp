#include "tessera/spmd/partition/specialize.h"

#include <algorithm>
#include <memory>
#include <set>

#include "tessera/base/error.h"
#include "tessera/mesh/group.h"
#include "tessera/spmd/collective_attributes.h"
#include "tessera/spmd/partition/init.h"

namespace tessera::spmd {
namespace {

class Specializer {
 public:
  Specializer(const Program& program, const std::vector<int64_t>& coordinates)
      : program_(program), coordinates_(coordinates) {
    result_.mesh = program.mesh;
    result_.hints = program.hints;
    result_.equal_extents = program.equal_extents;
    result_.graph = std::make_unique<Graph>();
    result_.graph->name = program.graph->name;
  }

  Program run() {
    find_used();
    for (const Port& port : program_.inputs) result_.inputs.push_back({port.name, copy_source(*port.value)});
    for (const auto& value : program_.graph->values()) {
      if (value->producer || value->kind == ValueKind::input) continue;
      const bool kept = value->kind == ValueKind::state ? lives_here(value.get()) : used_.contains(value.get());
      if (kept) copy_source(*value);
    }
    for (const auto& node : program_.graph->nodes())
      if (alive_.contains(node.get())) copy(*node);
    for (const auto& value : program_.graph->values())
      if (value->next && known_.contains(value.get()))
        result_.graph->set_next(known_.at(value.get()), known_.at(value->next));
    for (const Port& port : program_.outputs) {
      Value* value = lives_here(port.value) ? known_.at(port.value) : nullptr;
      if (value) result_.graph->outputs.push_back(value);
      result_.outputs.push_back({port.name, value});
    }
    verify(result_, "specialize");
    return std::move(result_);
  }

 private:
  // A value that does not stand for a global one lives where it is used.
  bool lives_here(const Value* value) const {
    auto placed = program_.placements.find(value);
    return placed == program_.placements.end() || placed->second.sharding.lives_on(program_.mesh, coordinates_);
  }

  // Whether a member of this rank's group is where the result lives; if so, every member takes part.
  bool takes_part(const Node& communication) const {
    const auto place = place_of(program_, communication);
    return !place || Sharding{{}, {}, *place}.lives_on(program_.mesh, coordinates_);
  }

  void find_used() {
    auto use = [&](const Value* value) {
      if (value && lives_here(value)) used_.insert(value);
    };
    for (const Port& port : program_.outputs) use(port.value);
    for (const auto& value : program_.graph->values())
      if (value->next && lives_here(value.get())) use(value->next);
    const auto& nodes = program_.graph->nodes();
    for (auto at = nodes.rbegin(); at != nodes.rend(); ++at) {
      const Node& node = **at;
      const bool wanted = std::any_of(node.outputs.begin(), node.outputs.end(),
                                      [&](const Value* result) { return used_.contains(result); });
      if (!(node.domain == kCommDomain ? takes_part(node) : wanted)) continue;
      alive_.insert(&node);
      for (const Value* operand : node.inputs) use(operand);
    }
  }

  void place(const Value& was, Value* value) {
    known_[&was] = value;
    if (auto placed = program_.placements.find(&was); placed != program_.placements.end())
      result_.placements[value] = placed->second;
    if (auto data = program_.initial.find(&was); data != program_.initial.end()) result_.initial[value] = data->second;
    value->changing = was.changing;
    check(value->name == was.name, fmt::format("'{}' keeps its name", was.name));
  }

  Value* copy_source(const Value& value) {
    Value* made = result_.graph->add_value(value.name, value.kind, value.type);
    made->data = value.data;
    made->content = value.content;
    made->extra = value.extra;
    if (value.kind == ValueKind::input) result_.graph->inputs.push_back(made);
    place(value, made);
    return made;
  }

  void copy(const Node& node) {
    auto made = std::make_unique<Node>(node);
    for (Value*& operand : made->inputs) {
      if (!operand) continue;
      const bool here = lives_here(operand);
      check(here || node.domain == kCommDomain, fmt::format("{} has its operands where it runs", node.label()));
      operand = here ? known_.at(operand) : nullptr;
    }
    for (Value*& result : made->outputs) {
      if (!result) continue;
      const Value* was = result;
      result = result_.graph->add_value(was->name, ValueKind::result, was->type);
      result->content = was->content;
      place(*was, result);
    }
    result_.graph->adopt_node(std::move(made));
  }

  const Program& program_;
  const std::vector<int64_t>& coordinates_;
  Program result_;
  std::set<const Value*> used_;
  std::set<const Node*> alive_;
  std::map<const Value*, Value*> known_;
};

}  // namespace

std::optional<std::vector<PlacedAxis>> place_of(const Program& program, const Node& node) {
  for (const Value* result : node.outputs) {
    auto placed = result ? program.placements.find(result) : program.placements.end();
    if (placed == program.placements.end()) continue;
    std::vector<PlacedAxis> place = placed->second.sharding.at;
    if (communication_of(node))
      for (const std::string& name : read_collective(node).axes)
        std::erase_if(place, [axis = parse_axis(name, program.mesh)](const PlacedAxis& entry) {
          return entry.axis.overlaps(axis);
        });
    return place;
  }
  return std::nullopt;
}

std::vector<AxisRef> placed_axes(const Program& program) {
  std::set<AxisRef> axes;
  for (const auto& [value, placement] : program.placements)
    for (const PlacedAxis& place : placement.sharding.at) axes.insert(place.axis);
  return {axes.begin(), axes.end()};
}

Program specialize(const Program& program, const std::vector<int64_t>& coordinates) {
  return specializer(program)(coordinates);
}

std::function<Program(const std::vector<int64_t>&)> specializer(const Program& program) {
  if (!program.init)
    return [&program](const std::vector<int64_t>& coordinates) { return Specializer(program, coordinates).run(); };
  return [whole = std::make_shared<const Program>(in_one_graph(program)),
          derived = derived_states(program)](const std::vector<int64_t>& coordinates) {
    Program own = Specializer(*whole, coordinates).run();
    move_to_init(own, derived);
    return own;
  };
}

}  // namespace tessera::spmd
