#include "tessera/program_io/rank_graph.h"

#include <algorithm>
#include <map>

#include "tessera/base/error.h"
#include "tessera/dialect/foreign.h"
#include "tessera/dialect/schema.h"
#include "tessera/dialect/tokens.h"
#include "tessera/ir/kept_nodes.h"
#include "tessera/mesh/sharding.h"
#include "tessera/ops/op.h"
#include "tessera/program_io/expression_nodes.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"
#include "tessera/spmd/program.h"

namespace tessera::program_io {
namespace {

bool is_collective(const Node& node) {
  return node.domain == spmd::kCommDomain || dialect::is_foreign(node);
}

bool is_position(const Node& node) {
  return node.domain == spmd::kCommDomain && !dialect::communicates(node);
}

// Visits the nodes of the model's graph and of its functions.
bool any_node(const OnnxModel& model, bool (*is)(const Node&)) {
  auto any = [&](const Graph& graph) {
    return std::any_of(graph.nodes().begin(), graph.nodes().end(), [&](const auto& node) { return is(*node); });
  };
  return any(*model.graph) || std::any_of(model.functions.begin(), model.functions.end(),
                                          [&](const Function& function) { return any(*function.body); });
}

// The types that the file states for nodes' results, by name.
std::map<std::string, TensorType> declared_results(const Graph& graph) {
  std::map<std::string, TensorType> declared;
  for (const auto& node : graph.nodes())
    for (const Value* result : node->outputs)
      if (result) declared[result->name] = result->type;
  return declared;
}

void require_declared(const Graph& graph, const std::map<std::string, TensorType>& declared) {
  for (const auto& node : graph.nodes())
    for (const Value* result : node->outputs) {
      const auto known = result ? declared.find(result->name) : declared.end();
      if (known == declared.end() || agrees(known->second, result->type)) continue;
      const TensorType& stated = known->second;
      fail("join", "{}: '{}' is {}{}, but the file declares {}{}; fix the declaration or the node", node->label(),
           result->name, name_of(result->dtype()), to_string(result->shape()),
           stated.dtype == DType::undefined ? "" : name_of(stated.dtype), stated.shape ? to_string(*stated.shape) : "");
    }
}

}  // namespace

bool agrees(const TensorType& declared, const TensorType& found) {
  if (declared.dtype != DType::undefined && declared.dtype != found.dtype) return false;
  if (!declared.shape || !found.shape) return true;
  return std::equal(declared.shape->begin(), declared.shape->end(), found.shape->begin(), found.shape->end(),
                    [](const Expr& a, const Expr& b) { return !a.is_constant() || !b.is_constant() || a == b; });
}

bool has_collectives(const OnnxModel& model) {
  return any_node(model, is_collective);
}

bool asks_for_rank(const OnnxModel& model) {
  return any_node(model, is_position);
}

void flatten(OnnxModel& model) {
  rewrite::inline_functions(model);
  rewrite::upgrade(model);
  dialect::strip_tokens(*model.graph);
  dialect::split_variadic(*model.graph);
}

void settle_collectives(OnnxModel& model, const Mesh& mesh, std::optional<int64_t> rank) {
  Graph& graph = *model.graph;
  take_position_inputs(graph, mesh, rank);
  for (const Value* input : graph.inputs)
    if (!input->has_shape() || input->dtype() == DType::undefined)
      fail("join", "input '{}' has no element type or no rank in the file; state them (dimensions may be symbols)",
           input->name);
  const std::map<std::string, TensorType> declared = declared_results(graph);
  {
    const KeptNodes kept(graph, is_collective);
    rewrite::lower_losses(model);
    rewrite::fold(model, [&](Node& node) {
      if (dialect::is_foreign(node)) {
        dialect::from_foreign(graph, node, mesh, rank);
      } else if (node.domain == spmd::kCommDomain) {
        dialect::check_node(node, mesh);
        dialect::infer_node(node, mesh);
      } else {
        ops::op_of(node);  // throws the error that names the operator
      }
      for (Value* result : node.outputs)
        if (result && result->content && rank)
          for (Expr& element : *result->content) element = bind_rank(element, mesh, mesh.coordinates(*rank));
    });
    require_declared(graph, declared);
    for (auto pass :
         {rewrite::canonicalize, rewrite::merge_equal, rewrite::raise_normalization, rewrite::raise_activation,
          rewrite::raise_rotary, rewrite::raise_attention, rewrite::canonicalize, rewrite::merge_equal})
      pass(model);
  }
  graph.verify("join");
}

}  // namespace tessera::program_io
