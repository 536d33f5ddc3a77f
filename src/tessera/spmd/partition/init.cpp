#include "tessera/spmd/partition/init.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/ir/transplant.h"

namespace tessera::spmd {
namespace {

// The results of a node of init in a graph without their producer; if the graph has a producer of its own, that is
// erased.
std::vector<Value*> results_in(Graph& graph, const Node& node, std::map<const Value*, Value*>& map) {
  std::vector<Value*> results;
  std::set<Node*> makers;
  for (const Value* result : node.outputs) {
    Value* own = !result ? nullptr : map.contains(result) ? map.at(result) : graph.find(result->name);
    if (result && !own) own = graph.add_value(result->name, ValueKind::result, result->type);
    if (own && own->producer) makers.insert(std::exchange(own->producer, nullptr));
    results.push_back(own);
    if (!own) continue;
    own->kind = ValueKind::result;
    own->content = result->content;
    own->extra = result->extra;
    map[result] = own;
  }
  for (Node* maker : makers) {
    maker->outputs.clear();
    graph.erase(maker);
  }
  return results;
}

// Erases the step's nodes whose results are unused, and nodes that only these read.
void erase_idle(Program& program, const std::set<const Node*>& nodes) {
  Graph& step = *program.graph;
  std::set<const Value*> wanted(step.outputs.begin(), step.outputs.end());
  for (const auto& value : step.values()) wanted.insert(value->next);
  const auto is_idle = [&](const Value* value) { return !value || (value->uses.empty() && !wanted.contains(value)); };
  std::vector<Node*> backwards;
  for (auto node = step.nodes().rbegin(); node != step.nodes().rend(); ++node)
    if (nodes.contains(node->get())) backwards.push_back(node->get());
  std::set<Value*> sources;
  for (Node* node : backwards) {
    if (!std::all_of(node->outputs.begin(), node->outputs.end(), is_idle)) continue;
    for (Value* operand : node->inputs)
      if (operand && (operand->kind == ValueKind::constant || operand->kind == ValueKind::expression))
        sources.insert(operand);
    for (const Value* result : node->outputs) program.placements.erase(result);
    step.erase(node);
  }
  for (Value* source : sources) {
    if (!is_idle(source)) continue;
    program.placements.erase(source);
    step.erase(source);
  }
}

}  // namespace

void move_to_init(Program& program, const std::vector<std::string>& names) {
  check(!program.init, "init is still empty");
  Graph& step = *program.graph;
  std::vector<Value*> results;
  for (const std::string& name : names)
    if (Value* result = step.find(name); result && result->producer) results.push_back(result);
  if (results.empty()) return;
  program.init = std::make_unique<Graph>();
  program.init->name = step.name + ".init";
  const std::set<const Node*> makers = makers_of(step, results);
  Transplant transplant(*program.init);
  for (const auto& node : step.nodes()) {
    if (!makers.contains(node.get())) continue;
    std::vector<Value*> made;
    for (const Value* result : node->outputs) {
      made.push_back(result ? program.init->add_value(result->name, ValueKind::result, result->type) : nullptr);
      if (!result) continue;
      made.back()->content = result->content;
      made.back()->extra = result->extra;
      if (auto placed = program.placements.find(result); placed != program.placements.end())
        program.placements.emplace(made.back(), Placement(placed->second));
    }
    check(transplant.copy(*node, std::move(made)), "the new graph is empty");
    for (const Value* source : node->inputs)
      if (auto placed = program.placements.find(source);
          source && !source->producer && placed != program.placements.end())
        program.placements.emplace(transplant.at(source), Placement(placed->second));
  }
  for (Value* result : results) {
    Value* made = transplant.at(result);
    program.init->outputs.push_back(made);
    program.derived[result] = made;
    std::vector<Value*>& of_maker = std::exchange(result->producer, nullptr)->outputs;
    std::replace(of_maker.begin(), of_maker.end(), result, static_cast<Value*>(nullptr));
    result->kind = ValueKind::state;
  }
  erase_idle(program, makers);
  step.verify("init");
  program.init->verify("init");
}

Program in_one_graph(const Program& program) {
  Program one;
  one.mesh = program.mesh;
  one.hints = program.hints;
  one.reshards = program.reshards;
  one.equal_extents = program.equal_extents;
  one.lowered = program.lowered;
  one.as_written = program.as_written;
  one.departure = program.departure;
  std::map<const Value*, Value*> map;
  one.graph = program.graph->clone(&map);
  for (const auto& [from, to] : {std::pair(&program.inputs, &one.inputs), {&program.outputs, &one.outputs}})
    for (const Port& port : *from) to->push_back({port.name, port.value ? map.at(port.value) : nullptr});
  for (const auto& [value, data] : program.initial) one.initial[map.at(value)] = data;
  if (program.init) {
    for (const auto& [state, made] : program.derived) map[made] = map.at(state);
    Transplant transplant(*one.graph);
    for (const auto& node : program.init->nodes())
      check(transplant.copy(*node, results_in(*one.graph, *node, map)), "both graphs have the same sources");
    one.graph->sort();
  }
  for (const auto& [value, placement] : program.placements)
    if (auto own = map.find(value); own != map.end()) one.placements[own->second] = placement;
  verify(one, "in one graph");
  return one;
}

std::vector<std::string> derived_states(const Program& program) {
  std::vector<std::string> names;
  if (program.init)
    for (const Value* made : program.init->outputs) names.push_back(made->name);
  return names;
}

bool step_keeps(const Program& program, const Value* state) {
  return !state->uses.empty() || state->changing || program.graph->is_output(state) ||
         std::any_of(program.graph->values().begin(), program.graph->values().end(),
                     [&](const auto& value) { return value->next == state; });
}

}  // namespace tessera::spmd
