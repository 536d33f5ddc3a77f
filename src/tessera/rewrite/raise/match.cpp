#include "tessera/rewrite/raise/match.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "tessera/ops/op.h"
#include "tessera/rewrite/edit.h"

namespace tessera::rewrite {
namespace {

/// No pattern has more products than this between its factors. A longer product counts as one factor, so that a chain
/// of thousands costs no more.
constexpr int kMostProducts = 16;

void collect(const Graph& graph, Value* value, bool open, int& products, Product& into) {
  Node* node = value->producer;
  if (node && node->domain.empty() && (open || used_once(graph, value)) && products++ < kMostProducts) {
    if (node->is("Mul")) {
      for (Value* operand : node->inputs) {
        if (auto scalar = scalar_of(operand))
          into.coefficient *= *scalar;
        else if (node->inputs[0] == node->inputs[1])
          into.factors.push_back(operand);
        else
          collect(graph, operand, false, products, into);
      }
      return;
    }
    if (node->is("Div") && scalar_of(node->inputs[1])) {
      into.coefficient /= *scalar_of(node->inputs[1]);
      collect(graph, node->inputs[0], false, products, into);
      return;
    }
    auto exponent = node->is("Pow") ? scalar_of(node->inputs[1]) : std::nullopt;
    if (exponent == 2 || exponent == 3) {
      for (int i = 0; i < *exponent; ++i) into.factors.push_back(node->inputs[0]);
      return;
    }
  }
  into.factors.push_back(value);
}

}  // namespace

Product product_of(const Graph& graph, Value* value) {
  Product product;
  int products = 0;
  collect(graph, value, true, products, product);
  return product;
}

Value* without_scale(Value* value, double& scale) {
  while (true) {
    if (Node* product = made_by(value, "Mul")) {
      auto left = scalar_of(product->inputs[0]), right = scalar_of(product->inputs[1]);
      if (!left && !right) return value;
      scale *= left ? *left : *right;
      value = product->inputs[left ? 1 : 0];
    } else if (Node* quotient = made_by(value, "Div"); quotient && scalar_of(quotient->inputs[1])) {
      scale /= *scalar_of(quotient->inputs[1]);
      value = quotient->inputs[0];
    } else {
      return value;
    }
  }
}

Value* beside_scalar(const Node* node, double expected) {
  if (!node || node->inputs.size() != 2) return nullptr;
  for (size_t i : {0, 1})
    if (is_scalar(node->inputs[i], expected)) return node->inputs[1 - i];
  return nullptr;
}

bool used_only_by(const Graph& graph, const Value* value, std::initializer_list<const Node*> nodes) {
  return !graph.is_output(value) && std::all_of(value->uses.begin(), value->uses.end(), [&](const Use& use) {
    return std::find(nodes.begin(), nodes.end(), use.node) != nodes.end();
  });
}

bool used_only_between(const Graph& graph, const Value* from, const Value* to, const std::set<const Value*>& stops) {
  // Nodes between both, and whether they depend on `from`.
  std::map<const Node*, bool> leads;
  const std::function<bool(const Value*)> reaches = [&](const Value* value) {
    if (value == from) return true;
    if (!value || !value->producer || stops.contains(value)) return false;
    const auto [known, fresh] = leads.emplace(value->producer, false);
    if (fresh)
      for (const Value* operand : value->producer->inputs)
        if (reaches(operand)) known->second = true;
    return known->second;
  };
  reaches(to);
  const auto is_moved = [&](const Value* value) {
    while (value && value != from && value->producer && ops::moves_of(*value->producer) != ops::Moves::nothing)
      value = value->producer->input(0);
    return value == from;
  };
  for (const auto& [node, is_between] : leads)
    for (const Value* result : node->outputs)
      if (is_between && result && result != to && !is_moved(result) &&
          (graph.is_output(result) || std::any_of(result->uses.begin(), result->uses.end(), [&](const Use& use) {
             const auto user = leads.find(use.node);
             return user == leads.end() || !user->second;
           })))
        return false;
  return true;
}

Node* only_user(const Graph& graph, const Value* value) {
  return used_once(graph, value) ? value->uses[0].node : nullptr;
}

std::optional<Range1D> slice_of(const Node& node) {
  if (!node.is("Slice")) return std::nullopt;
  auto starts = numbers(node.input(1)), ends = numbers(node.input(2));
  auto axes = node.input(3) ? numbers(node.input(3)) : std::vector<int64_t>{0};
  auto steps = node.input(4) ? numbers(node.input(4)) : std::vector<int64_t>{1};
  if (!starts || !ends || !axes || !steps || starts->size() != 1 || axes->size() != 1 || steps->at(0) != 1)
    return std::nullopt;
  const Shape& shape = node.inputs[0]->shape();
  int64_t axis = axes->at(0) < 0 ? axes->at(0) + static_cast<int64_t>(shape.size()) : axes->at(0);
  auto extent = shape.at(axis).constant();
  if (!extent) return std::nullopt;
  auto clamp = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + *extent : at, 0, *extent); };
  return Range1D{static_cast<size_t>(axis), clamp(starts->at(0)), clamp(ends->at(0))};
}

}  // namespace tessera::rewrite
