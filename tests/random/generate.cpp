#include <set>

#include "mesh/random_sharding.h"
#include "random/writer.h"
#include "tessera/base/error.h"
#include "tessera/ir/flow.h"
#include "tessera/spmd/decide/decide.h"

namespace tessera::random {
namespace {

Mesh random_mesh(Writer& w) {
  constexpr int64_t kMostRanks = 12;
  std::vector<MeshAxis> axes;
  int64_t ranks = 1;
  const int64_t count = w.one_of<int64_t>({1, 1, 2, 2, 2, 3});
  for (const char* name : {"x", "y", "z"}) {
    if (static_cast<int64_t>(axes.size()) == count) break;
    const int64_t size =
        w.between(w.one_in(10) ? 1 : 2, std::max<int64_t>(2, std::min<int64_t>(6, kMostRanks / ranks)));
    if (ranks * size > kMostRanks) break;
    ranks *= size;
    axes.push_back({name, size});
  }
  return Mesh(axes);
}

/// Axes on whole dimensions, without parts.
void forget_parts(Sharding& sharding) {
  for (DimSharding& dim : sharding.dims) {
    Part whole{1, {}};
    for (Part& part : dim.parts) {
      whole.size = whole.size * part.size;
      whole.axes.insert(whole.axes.end(), part.axes.begin(), part.axes.end());
    }
    dim.parts = {whole};
  }
}

/// A value that carries data, and is not a list of extents.
bool has_layout(const Value* value) {
  if (value->kind != ValueKind::input && value->kind != ValueKind::state && value->kind != ValueKind::result)
    return false;
  return value->rank() > 0 && !value->content && bits_of(value->dtype()) % 8 == 0;
}

void order_layouts(Program& program, Writer& w) {
  const int64_t share = w.between(1, 6);
  const bool with_parts = w.one_in(2);
  for (const auto& value : program.model.graph->values()) {
    if (value->uses.empty() && !program.model.graph->is_output(value.get())) continue;
    if (!has_layout(value.get()) || !chance(w.engine(), static_cast<int>(share))) continue;
    Sharding sharding = random_sharding(value->shape(), program.mesh, w.engine());
    if (!with_parts) forget_parts(sharding);
    program.orders.push_back({value->name, std::move(sharding)});
  }
}

/// Whether an annotation splits the node's result, or a source that it uses, over the axis.
bool is_ordered_over(const Program& program, const Node& node, const AxisRef& axis) {
  return std::any_of(program.orders.begin(), program.orders.end(), [&](const Order& order) {
    const Value* value = program.model.graph->find(order.name);
    const bool made = value && value->producer == &node;
    const bool used = value && !value->producer && std::count(node.inputs.begin(), node.inputs.end(), value) > 0;
    return (made || used) && order.sharding.uses(axis);
  });
}

/// Claims of some results what propagation makes of them: a partial sum over the axes over which it comes out as one.
void claim_partial_sums(Program& program, Writer& w) {
  if (program.orders.empty() || !w.one_in(2)) return;
  const Graph& graph = *program.model.graph;
  std::vector<spmd::Annotation> annotations;
  std::multimap<const Value*, Sharding> cuts;
  for (const Order& order : program.orders) {
    const Value* value = graph.find(order.name);
    annotations.push_back({value, order.sharding, "annotation"});
    cuts.emplace(value, order.sharding);
  }
  const spmd::Hints hints(program.symbols.begin(), program.symbols.end());
  spmd::Layout layout(graph, hints, cuts);
  spmd::Decisions decisions;
  try {
    spmd::propagate(layout, annotations, program.mesh);
    decisions = spmd::decide(graph, layout, program.mesh, hints);
  } catch (const Error&) {
    return;  // an annotation that cannot be followed, which the check judges
  }
  for (size_t n = 0; n < layout.nodes.size(); ++n)
    for (size_t t = 0; t < layout.nodes[n].node->outputs.size(); ++t) {
      const Value* value = layout.nodes[n].node->outputs[t];
      const Sharding& produced = decisions.nodes[n].results[t];
      if (!value || !produced.is_partial() || !has_layout(value) || w.one_in(3)) continue;
      std::erase_if(program.orders, [&](const Order& order) { return order.name == value->name; });
      program.orders.push_back({value->name, produced});
    }
}

void place_nodes(Program& program, Writer& w) {
  if (!w.one_in(3) || flow::has_flow(*program.model.graph)) return;
  const int64_t share = w.between(2, 9);
  for (const auto& node : program.model.graph->nodes()) {
    if (!node->output() || !chance(w.engine(), static_cast<int>(share))) continue;
    Placing placing{node->output()->name, {}};
    for (const MeshAxis& axis : program.mesh.axes())
      if (w.one_in(2) && !is_ordered_over(program, *node, AxisRef::whole(axis)))
        placing.place.push_back({AxisRef::whole(axis), w.between(0, axis.size - 1)});
    if (!placing.place.empty()) program.places.push_back(std::move(placing));
  }
}

void choose_outputs(Program& program, Writer& w) {
  Graph& graph = *program.model.graph;
  const flow::Flow flow = flow::flow_of(graph);
  for (const auto& node : graph.nodes())
    for (Value* result : node->outputs)
      if (result && leaves(flow, *node) && (result->uses.empty() || w.one_in(6))) graph.outputs.push_back(result);
}

}  // namespace

bool leaves(const flow::Flow& flow, const Node& node) {
  return flow.of(&node) < 0 && !flow::is(node, "Loop") && !flow::is(node, "Branch") && !flow::is(node, "Join");
}

const std::vector<Addition>& additions(Operators operators) {
  static const auto of = [](bool with_cases) {
    std::vector<Addition> list;
    for (auto family : {elementwise_additions, movement_additions, indexing_additions, contraction_additions,
                        normalization_additions})
      for (Addition addition : family()) list.push_back(addition);
    if (with_cases)
      for (Addition addition : case_additions()) list.push_back(addition);
    return list;
  };
  static const std::vector<Addition> common = of(false), all = of(true);
  return operators == Operators::all ? all : common;
}

Program Program::clone() const {
  return {model.clone(), inputs, symbols, facts, mesh, orders, places, rings, priced};
}

void tidy(Program& program) {
  Graph& graph = *program.model.graph;
  graph.erase_dead(true);
  auto is_used = [&](const Value* value) { return !value->uses.empty() || graph.is_output(value); };
  std::erase_if(graph.inputs, [&](const Value* input) { return !is_used(input); });
  std::erase_if(program.inputs, [&](const auto& entry) {
    return std::none_of(graph.inputs.begin(), graph.inputs.end(),
                        [&](const Value* input) { return input->name == entry.first; });
  });
  std::erase_if(program.orders, [&](const Order& order) {
    const Value* value = graph.find(order.name);
    return !value || !is_used(value);
  });
  std::erase_if(program.places, [&](const Placing& placing) {
    const Value* value = graph.find(placing.name);
    return !value || !value->producer;
  });
  std::set<std::string> symbols;
  for (const Value* input : graph.inputs)
    for (const Expr& extent : input->shape()) extent.collect_symbols(symbols);
  std::erase_if(program.symbols, [&](const auto& entry) { return !symbols.contains(entry.first); });
}

Program generate(uint64_t seed, Operators operators) {
  Program program;
  program.model.opset_imports[""] = 24;
  program.model.graph->name = "seed_" + std::to_string(seed);
  Writer w(program, seed);
  const bool any = operators == Operators::all;
  if (any && w.one_in(8)) w.allow_specials();
  for (int64_t more = w.between(1, 3); more > 0; --more) {
    const DType dtype = w.one_of<DType>({DType::float32, DType::float32, DType::float32, DType::float32, DType::float32,
                                         DType::float32, DType::float64, DType::float16, DType::bfloat16, DType::int32,
                                         DType::int64, DType::int8, DType::uint8, DType::boolean});
    w.source(w.random_shape(1, 4), dtype);
  }
  const auto wanted = static_cast<size_t>(any && w.one_in(4) ? w.between(12, 40) : w.between(3, 12));
  constexpr int kMostTries = 200;
  for (int tries = 0; tries < kMostTries && program.model.graph->nodes().size() < wanted; ++tries)
    w.one_of(additions(operators))(w);
  choose_outputs(program, w);
  tidy(program);
  program.mesh = random_mesh(w);
  order_layouts(program, w);
  if (any) claim_partial_sums(program, w);
  place_nodes(program, w);
  program.rings = w.one_in(2);
  program.priced = w.one_in(2);
  return program;
}

}  // namespace tessera::random
