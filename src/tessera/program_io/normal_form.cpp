#include "tessera/program_io/normal_form.h"

#include <algorithm>
#include <map>
#include <set>

#include "tessera/base/error.h"
#include "tessera/dialect/schema.h"
#include "tessera/ir/always_equal.h"
#include "tessera/ir/kept_nodes.h"
#include "tessera/mesh/axis_bounds.h"
#include "tessera/ops/library/infer.h"
#include "tessera/program_io/lowering.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"

namespace tessera::program_io {
namespace {

// In this domain, local operators are functions, so they are inlined although the operators are known.
constexpr std::string_view kExpandedDomain = "tessera.expanded";

bool is_source(const Value& value) {
  return value.kind == ValueKind::input || value.kind == ValueKind::state;
}

/// With the placements of sources and outputs.
spmd::Program clone_of(const spmd::Program& program) {
  spmd::Program copy;
  std::map<const Value*, Value*> map;
  copy.mesh = program.mesh;
  copy.graph = program.graph->clone(&map);
  for (const auto& [from, to] : {std::pair(&program.inputs, &copy.inputs), {&program.outputs, &copy.outputs}})
    for (const spmd::Port& port : *from) to->push_back({port.name, port.value ? map.at(port.value) : nullptr});
  for (const auto& value : program.graph->values())
    if (is_source(*value) || program.graph->is_output(value.get()))
      if (auto placed = program.placements.find(value.get()); placed != program.placements.end())
        copy.placements.emplace(map.at(value.get()), placed->second);
  return copy;
}

bool has_body(const Node& node) {
  if (node.domain != spmd::kLocalDomain) return false;
  try {
    local_function(node);
    return true;
  } catch (const Error&) {
    return false;  // it is then compared as a node
  }
}

void expand_local_operators(OnnxModel& model) {
  std::set<std::string> known;
  for (Node* node : rewrite::nodes_of(*model.graph)) {
    if (!has_body(*node)) continue;
    node->domain = kExpandedDomain;
    if (!known.insert(node->op_type).second) continue;
    Function function = local_function(*node);
    function.domain = kExpandedDomain;
    model.functions.push_back(std::move(function));
  }
  rewrite::inline_functions(model);
  rewrite::drop_stamps(*model.graph);
}

// Sizes of axes simplify quotients and remainders of indices.
void bound_indices(Graph& graph, const Mesh& mesh) {
  for (const auto& value : graph.values()) {
    if (value->has_shape())
      for (Expr& extent : *value->type.shape) extent = with_axis_bounds(extent, mesh);
    if (value->content)
      for (Expr& element : *value->content) element = with_axis_bounds(element, mesh);
  }
}

// Some tools fold computations that others leave to nodes; here, all numbers become constants.
void settle_numbers(Graph& graph) {
  for (Value* value : graph.values_of(ValueKind::expression))
    if (constants_of(*value->content))
      if (Value* known = rewrite::known_value(graph, *value)) graph.replace_uses(value, known);
}

// Fills in the extent that a shape leaves open, which follows from the operand.
void close_shapes(Graph& graph) {
  for (Node* node : rewrite::nodes_of(graph)) {
    if (!node->is("Reshape") || !ops::content_of(node->input(1))) continue;
    graph.set_input(node, 1, rewrite::shape_operand(graph, node->output()->shape()));
    node->set("allowzero", int64_t{1});
  }
}

// Opens the only symbolic extent of a shape, which follows from the operand, so that its spelling does not matter.
void open_shapes(Graph& graph) {
  for (Node* node : rewrite::nodes_of(graph)) {
    auto shape = node->is("Reshape") ? ops::content_of(node->input(1)) : std::nullopt;
    if (!shape || !node->input(0)->has_shape() || !always_equal(product(*shape), product(node->input(0)->shape())))
      continue;
    std::vector<int64_t> extents;
    for (const Expr& extent : *shape) extents.push_back(extent.constant().value_or(-1));
    if (std::count(extents.begin(), extents.end(), -1) != 1 || std::count(extents.begin(), extents.end(), 0) > 0)
      continue;
    graph.set_input(node, 1, graph.constant_int64(extents));
  }
}

/// The placements that survive all passes: those of inputs, states and output ports. Other values are replaced, and a
/// new one may have the address of an erased one with another layout.
class Lasting {
 public:
  explicit Lasting(spmd::Program& program) {
    for (const auto& value : program.graph->values())
      if (is_source(*value)) keep(program, value.get(), sources_, value->name);
    for (const spmd::Port& port : program.outputs) keep(program, port.value, outputs_, port.name);
    program.placements.clear();
  }

  void give_to(spmd::Program& program) const {
    for (const auto& value : program.graph->values())
      if (auto known = sources_.find(value->name); known != sources_.end() && is_source(*value))
        program.placements.emplace(value.get(), known->second);
    for (const spmd::Port& port : program.outputs)
      if (auto known = outputs_.find(port.name); known != outputs_.end())
        program.placements.insert_or_assign(port.value, known->second);
  }

 private:
  using Named = std::map<std::string, spmd::Placement>;

  static void keep(const spmd::Program& program, const Value* value, Named& kept, const std::string& name) {
    const auto placed = program.placements.find(value);
    if (placed != program.placements.end()) kept.emplace(name, placed->second);
  }

  Named sources_, outputs_;
};

void normalize(spmd::Program& program) {
  const Lasting lasting(program);
  OnnxModel model;
  model.graph = std::move(program.graph);
  Graph& graph = *model.graph;
  bound_indices(graph, program.mesh);
  settle_numbers(graph);
  rewrite::spell_out(graph);
  expand_local_operators(model);
  {
    const KeptNodes kept(graph, dialect::communicates);
    rewrite::fold(model, [&](Node& node) {
      if (dialect::communicates(node) && node.input(0)) dialect::infer_node(node, program.mesh);
    });
    close_shapes(graph);
    rewrite::canonicalize(model);
    open_shapes(graph);
  }
  size_t next = 0;
  for (spmd::Port& port : program.outputs) {
    if (!port.value) continue;
    port.value = graph.outputs[next++];  // the port's layout is the output's, whatever was stated
  }
  program.graph = std::move(model.graph);
  lasting.give_to(program);
}

}  // namespace

spmd::Program normal_form(const spmd::Program& program) {
  try {
    spmd::Program normal = clone_of(program);
    normalize(normal);
    return normal;
  } catch (const Error&) {
    return clone_of(program);
  }
}

}  // namespace tessera::program_io
