#include <algorithm>
#include <cmath>
#include <numbers>

#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"
#include "tessera/rewrite/raise/match.h"

//   0.5·x·(1 + erf(x/√2))                          Gelu
//   0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))     Gelu(approximate = "tanh")
//   x·sigmoid(αx)                                  Swish
// for any order of their factors.
namespace tessera::rewrite {
namespace {

bool near(double value, double expected) {
  return std::abs(value - expected) <= 1e-5 * std::abs(expected);
}

bool is_product(const Product& product, double coefficient, std::initializer_list<const Value*> factors) {
  return near(product.coefficient, coefficient) &&
         std::is_permutation(product.factors.begin(), product.factors.end(), factors.begin(), factors.end());
}

/// x + 0.044715·x³, or x·(1 + 0.044715·x²) as the factors of a product.
bool is_cubic(const Graph& graph, const Product& argument, const Value* x) {
  constexpr double kCubic = 0.044715;
  if (!near(argument.coefficient, std::sqrt(2 / std::numbers::pi))) return false;
  const auto& factors = argument.factors;
  for (const Value* factor : factors) {
    Node* sum = used_once(graph, factor) ? made_by(factor, "Add") : nullptr;
    if (!sum) continue;
    if (factors.size() == 1)
      for (size_t i : {0, 1})
        if (sum->inputs[i] == x && used_once(graph, sum->inputs[1 - i]) &&
            is_product(product_of(graph, sum->inputs[1 - i]), kCubic, {x, x, x}))
          return true;
    Value* square = factors.size() == 2 && factors[factors[0] == factor] == x ? beside_scalar(sum, 1) : nullptr;
    if (square && used_once(graph, square) && is_product(product_of(graph, square), kCubic, {x, x})) return true;
  }
  return false;
}

/// The attribute `approximate` of the Gelu of x that has this factor, 1 + f(x); null if there is none.
const char* gelu_form(const Graph& graph, const Value* factor, const Value* x) {
  if (!used_once(graph, factor)) return nullptr;
  Value* function = beside_scalar(made_by(factor, "Add"), 1);
  if (!function || !used_once(graph, function) || !function->producer) return nullptr;
  Node* node = function->producer;
  if (node->is("Erf") && is_product(product_of(graph, node->inputs[0]), std::numbers::sqrt2 / 2, {x})) return "none";
  if (node->is("Tanh") && is_cubic(graph, product_of(graph, node->inputs[0]), x)) return "tanh";
  return nullptr;
}

/// Constants among the factors may have more dimensions, and widen the result to them.
bool keeps_shape(const Value* x, const Node* node) {
  return x->shape() == node->outputs[0]->shape();
}

bool raise_gelu(Graph& graph, Node* node) {
  Product product = product_of(graph, node->outputs[0]);
  if (product.factors.size() != 2 || !near(product.coefficient, 0.5)) return false;
  for (size_t i : {0, 1}) {
    Value* x = product.factors[i];
    const char* form = keeps_shape(x, node) ? gelu_form(graph, product.factors[1 - i], x) : nullptr;
    if (!form) continue;
    Value* gelu = emit(graph, "Gelu", {x}, node, {attribute("approximate", std::string(form))}, node->outputs[0]->name);
    return replace(graph, node->outputs[0], gelu);
  }
  return false;
}

bool raise_swish(Graph& graph, Node* node) {
  for (size_t i : {0, 1}) {
    Value* x = node->inputs[i];
    Value* gate = node->inputs[1 - i];
    Node* sigmoid = used_once(graph, gate) ? made_by(gate, "Sigmoid") : nullptr;
    if (!sigmoid) continue;
    double alpha = 1;
    Value* argument = sigmoid->inputs[0];
    if (argument != x && used_once(graph, argument)) argument = without_scale(argument, alpha);
    if (argument != x || !keeps_shape(x, node)) continue;
    Value* swish =
        emit(graph, "Swish", {x}, node, {attribute("alpha", static_cast<float>(alpha))}, node->outputs[0]->name);
    return replace(graph, node->outputs[0], swish);
  }
  return false;
}

}  // namespace

void raise_activation(OnnxModel& model) {
  Graph& graph = *model.graph;
  for (Node* node : nodes_of(graph)) {
    if (!node->is("Mul") && !node->is("Div")) continue;
    if (!raise_gelu(graph, node) && node->is("Mul")) raise_swish(graph, node);
  }
  graph.erase_dead();
}

}  // namespace tessera::rewrite
