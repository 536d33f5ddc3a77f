#include <algorithm>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/ir/aligned.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/op.h"
#include "tessera/rewrite/canonical/short_lists.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/literal.h"
#include "tessera/rewrite/lower/lists.h"
#include "tessera/rewrite/lower/lower.h"
#include "tessera/rewrite/passes.h"
#include "tessera/rewrite/raise/known_matrix.h"
#include "tessera/rewrite/regions/open_regions.h"

// Walks the nodes once, in order: replaces a node that is a constant in disguise, else infers its types; results whose
// elements are then known (Shape, and values computed from it) become constants or expressions.
//
//   n = Shape(x)[0];  y = Reshape(z, Concat(n, [-1]))     with x of shape [batch, 4]
//   → y = Reshape(z, {batch, -1})
namespace tessera::rewrite {
namespace {

/// A weight becomes a state of the same name, as if it were an initializer; false for other constants.
bool becomes_state(Graph& graph, Node* node, const Tensor& data) {
  Value* result = node->outputs[0];
  if (!is_weight(data)) return false;
  const std::string name = result->name;
  graph.rename(result, name + "_constant");
  Value* state = graph.add_state(name, data);
  state->extra = std::exchange(result->extra, "");
  graph.replace_uses(result, state);
  return true;
}

/// Makes constants of states whose elements are read before any run: the importer takes lists of floats, such as the
/// scales of a Resize, for parameters.
void settle_values(Graph& graph, Node* node) {
  for (size_t i = 0; i < node->operand_count(); ++i) {
    Value* stored = node->inputs[i];
    if (!stored || stored->kind != ValueKind::state || stored->changing || !needs_value(*node, i)) continue;
    const bool parameter =
        graph.is_output(stored) || std::any_of(stored->uses.begin(), stored->uses.end(),
                                               [](auto& use) { return !needs_value(*use.node, use.index); });
    if (parameter) {
      graph.set_input(node, i, graph.add_constant(stored->name, aligned(stored->data)));
    } else {
      stored->kind = ValueKind::constant;
      stored->data = aligned(stored->data);
    }
  }
}

/// If `from` becomes a graph output: nodes that read its elements before any run, and shape computations, take `to`
/// instead, so that these elements are known to them whoever else reads the output.
void redirect(Graph& graph, Value* from, Value* to) {
  if (to->kind != ValueKind::constant && to->kind != ValueKind::expression) return;
  const bool shape = to->rank() <= 1 && (is_integer(to->dtype()) || to->dtype() == DType::boolean);
  for (const Use& use : std::vector<Use>(from->uses))
    if (shape || needs_value(*use.node, use.index)) graph.set_input(use.node, use.index, to);
}

/// Uses of results whose elements are known take a constant or an expression instead. A graph output stays a node's
/// result: an Identity of it.
void fold_results(Graph& graph, Node* node) {
  if (node->is("Identity") && node->input(0)->kind != ValueKind::result) return;
  for (Value* result : node->outputs) {
    if (result && !result->content && result->rank() <= 1) result->content = known_elements(result);
    if (!result || !result->content) continue;
    Value* known = known_value(graph, *result);
    if (!known) continue;
    if (graph.is_output(result)) {
      redirect(graph, result, known);
      Value* copy = emit(graph, "Identity", {known}, node);
      known = copy;
    }
    replace(graph, result, known);
  }
}

}  // namespace

void fold(OnnxModel& model) {
  fold(model, [&](Node& node) {
    if (!lower_random(*model.graph, node)) ops::infer_results(ops::op_of(node), node);
  });
}

void fold(OnnxModel& model, const std::function<void(Node&)>& infer_other) {
  Graph& graph = *model.graph;
  // A computed result overrides the type that the file declares for it.
  auto becomes = [&](Node* node, Value* value) {
    node->outputs[0]->type = value->type;
    if (replace(graph, node->outputs[0], value)) return true;
    redirect(graph, node->outputs[0], value);
    return false;
  };
  std::function<void(Node*)> visit;
  RegionOpener regions(graph, [&](Node* node) { visit(node); });
  const auto handle = [&](Node* node) {
    if (node->is("Constant")) {
      auto data = literal(*node);
      if (!data) fail("fold", "{}: sparse and string constants are not supported", node->label());
      if (becomes_state(graph, node, *data)) return;
      Value* constant = graph.add_constant(node->outputs[0]->name, *data);
      if (graph.is_output(node->outputs[0])) {
        redirect(graph, node->outputs[0], constant);
        constant = emit(graph, "Identity", {constant}, node);
      }
      if (becomes(node, constant)) return;
    }
    if (Value* constant = fold_short_lists(graph, *node); constant && becomes(node, constant)) return;
    if (Value* given = node->is("Identity") ? node->input(0) : nullptr) {
      if ((!node->find_attribute(kLabel) || is_list(*given)) && becomes(node, given)) return;
      if (is_list(*given)) return graph.replace_uses(node->outputs[0], given);
    }
    if (regions.open(node)) return;
    settle_values(graph, node);
    if (lower_operator(graph, node, visit)) return;
    if (const ops::OpDef* op = ops::find_op(node->op_type, node->domain))
      ops::infer_results(*op, *node);
    else
      infer_other(*node);
    fold_results(graph, node);
  };
  visit = [&](Node* node) {
    naming_call(*node, [&] {
      node->remove_attribute(kCallStamp);
      handle(node);
    });
  };
  for (Node* node : nodes_of(graph)) visit(node);
  graph.erase_dead();
  refuse_read_lists(graph);
}

}  // namespace tessera::rewrite
