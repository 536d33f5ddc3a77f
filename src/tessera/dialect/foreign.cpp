#include "tessera/dialect/foreign.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <set>

#include "tessera/base/counted.h"
#include "tessera/dialect/engine.h"
#include "tessera/dialect/group.h"
#include "tessera/dialect/schema.h"
#include "tessera/mesh/group.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/op.h"
#include "tessera/rewrite/edit.h"
#include "tessera/spmd/program.h"

namespace tessera::dialect {
namespace {

// In the order of ForeignEngine.
const std::array<EngineEntry, 2>& engines() {
  static const std::array<EngineEntry, 2> table = {ort_engine(), tensorrt_engine()};
  return table;
}

const EngineEntry* engine_of(const Node& node) {
  for (const EngineEntry& engine : engines())
    if (engine.owns(node)) return &engine;
  return nullptr;
}

Outgoing outgoing(Graph& graph, Node& node, const Mesh& mesh, int64_t rank) {
  Outgoing result{graph, node, mesh, spmd::read_collective(node, mesh)};
  result.members = group_of(rank, parse_axes(result.collective.axes, mesh), mesh);
  result.of_all = static_cast<int64_t>(result.members.size()) == mesh.size() &&
                  std::is_sorted(result.members.begin(), result.members.end());
  return result;
}

void import_what_is_used(OnnxModel& model, const EngineEntry& engine) {
  std::set<std::string> used = {""};
  for (const auto& node : model.graph->nodes()) used.insert(node->domain);
  std::erase_if(model.opset_imports, [&](const auto& entry) { return !used.contains(entry.first); });
  if (used.contains(std::string(engine.domain)) && !engine.domain.empty())
    model.opset_imports[std::string(engine.domain)] = 1;
}

}  // namespace

const Shape& Incoming::shape() const {
  return ops::operand(node, 0).shape();
}

namespace {

void require_even(const Outgoing& outgoing, const Expr& extent, std::string_view engine) {
  const std::vector<Expr> extents = on_members(extent, outgoing.collective.axes, outgoing.mesh);
  if (std::adjacent_find(extents.begin(), extents.end(), std::not_equal_to<>()) == extents.end()) return;
  std::vector<std::string> shown;
  std::set<std::string> symbols;
  for (const Expr& each : extents) {
    shown.push_back(each.str());
    each.collect_symbols(symbols);
  }
  std::string fix;
  for (const std::string& symbol : symbols) fix += fmt::format("{}{}=…", fix.empty() ? "" : ",", symbol);
  if (!fix.empty()) fix = fmt::format("; if this size is always the same, give it with `shapes` {}", fix);
  outgoing.refuse(
      "its members' blocks have {} elements, and {} moves equal blocks only; split a dimension that {} divide, "
      "or write `dialect=tessera`{}",
      fmt::join(shown, ", "), engine, counted(extents.size(), "rank"), fix);
}

}  // namespace

void require_even(const Outgoing& outgoing, std::string_view engine) {
  const spmd::CollectiveAttributes& all = outgoing.collective;
  check(all.extent || (all.split_extent && all.concat_extent),
        fmt::format("{} states its members' extents", outgoing.node.label()));
  for (const auto* extent : {&all.extent, &all.split_extent, &all.concat_extent})
    if (*extent) require_even(outgoing, **extent, engine);
}

Expr block_of(const Incoming& incoming, int64_t dim, int64_t members) {
  const Expr& extent = incoming.shape().at(static_cast<size_t>(dim));
  auto block = Expr::exact_divide(extent, members);
  if (!block)
    incoming.refuse("dimension {} of its operand is {}, which {} members do not divide; pad it in the model", dim,
                    extent.str(), members);
  return *block;
}

void become(Graph& graph, Node& node, std::string_view op_type, std::string_view domain,
            const std::vector<Value*>& operands, std::vector<Attribute> attributes) {
  for (size_t i = 0; i < node.inputs.size(); ++i) graph.set_input(&node, i, nullptr);
  node.inputs.assign(operands.size(), nullptr);
  for (size_t i = 0; i < operands.size(); ++i) graph.set_input(&node, i, operands[i]);
  node.op_type = op_type;
  node.domain = domain;
  node.attributes = std::move(attributes);
}

void become(const Incoming& incoming, const spmd::CollectiveAttributes& collective) {
  become(incoming.graph, incoming.node, traits_of(collective.kind).op, spmd::kCommDomain, {incoming.node.input(0)},
         spmd::written(collective));
}

Node* put_before(Graph& graph, Node& node, std::string_view op_type, std::string_view domain, Value* operand,
                 Shape result) {
  Node* added = graph.add_node(op_type, {operand}, {node.output()->name + ".moved"}, domain, &node);
  added->outputs[0]->type = {operand->dtype(), std::move(result)};
  added->name = std::move(node.name);
  node.name.clear();
  return added;
}

bool to_foreign(OnnxModel& model, const Mesh& mesh, int64_t rank, ForeignEngine engine) {
  const EngineEntry& entry = engines()[static_cast<size_t>(engine)];
  Graph& graph = *model.graph;
  bool of_group = false;
  for (Node* node : rewrite::nodes_of(graph)) {
    if (node->domain != spmd::kCommDomain) continue;
    check(communicates(*node), fmt::format("{} is folded into the model of a rank", node->label()));
    Outgoing collective = outgoing(graph, *node, mesh, rank);
    entry.write(collective);
    of_group |= !collective.of_all;
  }
  import_what_is_used(model, entry);
  return of_group;
}

bool is_foreign(const Node& node) {
  return engine_of(node) != nullptr;
}

void split_variadic(Graph& graph) {
  for (Node* node : rewrite::nodes_of(graph)) {
    if (!is_foreign(*node) || node->inputs.size() < 2) continue;
    if (node->inputs.size() != node->outputs.size())
      fail("dialect", "{}: it has {} and {}; give one result for each operand", node->label(),
           counted(node->inputs.size(), "operand"), counted(node->outputs.size(), "result"));
    const std::vector<Value*> operands = node->inputs, results = node->outputs;
    become(graph, *node, std::string(node->op_type), std::string(node->domain), {operands.back()},
           std::move(node->attributes));
    node->outputs = {results.back()};
    for (size_t i = 0; i + 1 < operands.size(); ++i) {
      if (!results[i]) continue;
      auto single = std::make_unique<Node>();
      single->op_type = node->op_type;
      single->domain = node->domain;
      single->name = node->name.empty() ? "" : fmt::format("{}.{}", node->name, i);
      single->attributes = node->attributes;
      single->inputs = {operands[i]};
      single->outputs = {results[i]};
      results[i]->producer = nullptr;
      graph.adopt_node(std::move(single), node);
    }
  }
}

void from_foreign(Graph& graph, Node& node, const Mesh& mesh, std::optional<int64_t> rank) {
  const EngineEntry* engine = engine_of(node);
  check(engine != nullptr, fmt::format("{} is an engine's collective", node.label()));
  if (node.inputs.size() != 1 || !node.input(0) || node.outputs.size() != 1 || !node.output())
    fail("dialect", "{}: it must have one operand and one result", node.label());
  engine->read({graph, node, mesh, rank});
  if (node.domain == spmd::kCommDomain) {
    check_node(node, mesh);
    infer_node(node, mesh);
  } else {
    ops::op_of(node).infer(node);
  }
}

}  // namespace tessera::dialect
