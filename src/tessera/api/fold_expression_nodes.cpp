#include <algorithm>

#include "tessera/api/expression_nodes.h"
#include "tessera/base/error.h"
#include "tessera/ops/infer.h"
#include "tessera/ops/op.h"
#include "tessera/spmd/program.h"

namespace tessera::api {
namespace {

// The quotient that Div(x, y) is, where it rounds as floordiv does: of operands that are not negative, and of
// x = a - mod(a, y), which is how a quotient of others is written.
std::optional<Expr> quotient_of(const Expr& x, const Expr& y) {
  if (auto exact = Expr::exact_divide(x, y)) return exact;
  auto low = x.lower_bound(), divisor_low = y.lower_bound();
  if (low && *low >= 0 && divisor_low && *divisor_low >= 0) return floordiv(x, y);
  for (const Expr::Term& term : x.terms()) {
    if (term.coefficient != -1 || term.factors.size() != 1) continue;
    const Expr::Atom& atom = *term.factors[0];
    if (atom.kind != Expr::AtomKind::mod || !(atom.arguments[1] == y)) continue;
    Expr whole = x + mod(atom.arguments[0], y);
    if (whole - mod(whole, y) == x) return floordiv(whole, y);
  }
  return std::nullopt;
}

std::optional<std::vector<Expr>> quotients_of(const Node& node) {
  auto x = ops::content_of(node.input(0)), y = ops::content_of(node.input(1));
  if (!x || !y || x->size() != y->size()) return std::nullopt;
  std::vector<Expr> result;
  for (size_t i = 0; i < x->size(); ++i) {
    auto quotient = (*y)[i].is(0) ? std::nullopt : quotient_of((*x)[i], (*y)[i]);
    if (!quotient) return std::nullopt;
    result.push_back(*quotient);
  }
  return result;
}

// Whether all operands are known, and one of them is an expression: constants alone are left to the model.
bool is_foldable(const Node& node) {
  bool symbolic = false;
  for (const Value* operand : node.inputs) {
    if (!operand) continue;
    if (!ops::content_of(operand)) return false;
    symbolic |= operand->kind == ValueKind::expression;
  }
  return symbolic && ops::find_op(node.op_type, node.domain);
}

void become_expression(Graph& graph, Value* result, const std::vector<Expr>& content) {
  std::string name = result->name;
  graph.rename(result, name + ".nodes");
  Value* known = graph.add_expression(name, content, result->rank() == 0);
  known->type.dtype = result->dtype();
  graph.replace_uses(result, known);
}

}  // namespace

void fold_expression_nodes(Graph& graph) {
  std::erase_if(graph.inputs, [](Value* input) {
    if (!input->name.starts_with(kSymbolPrefix)) return false;
    input->kind = ValueKind::expression;
    input->content = {Expr::symbol(std::string_view(input->name).substr(kSymbolPrefix.size()))};
    return true;
  });
  std::vector<Node*> nodes;
  for (const auto& node : graph.nodes()) nodes.push_back(node.get());
  for (Node* node : nodes) {
    if (node->is("AxisIndex", spmd::kCommDomain)) {
      Value* index = node->output();
      if (index && !graph.is_output(index))
        become_expression(graph, index, {Expr::axis_index(node->get_string("axis", ""))});
      continue;
    }
    if (!is_foldable(*node)) continue;
    std::vector<TensorType> types;  // as the model states them
    for (const Value* result : node->outputs) types.push_back(result ? result->type : TensorType{});
    ops::op_of(*node).infer(*node);
    for (size_t r = 0; r < types.size(); ++r)
      if (node->outputs[r] && !node->outputs[r]->content) node->outputs[r]->type = types[r];
    if (node->is("Div"))
      if (auto quotients = quotients_of(*node)) node->output()->content = quotients;
    for (Value* result : node->outputs)
      if (result && result->content && !graph.is_output(result)) become_expression(graph, result, *result->content);
  }
  graph.erase_dead();
}

}  // namespace tessera::api
