#include "tessera/generate/longer_mask.h"

#include <algorithm>
#include <map>

#include "tessera/generate/token_meetings.h"
#include "tessera/rewrite/edit.h"

namespace tessera::generate {
namespace {

class LongerMask {
 public:
  LongerMask(Graph& graph, const std::string& symbol, int64_t keys, const Node* before)
      : graph_(graph), symbol_(symbol), keys_(keys), before_(before) {}

  /// The value as it is for so many keys; null if it may depend on their number otherwise than by having an element
  /// for each.
  Value* make(Value* value) {
    const auto known = made_.find(value);
    if (known != made_.end()) return known->second;
    return made_[value] = remake(value);
  }

 private:
  bool mentions_keys(const Expr& expression) const { return mentions(expression, symbol_); }
  Expr with_keys(const Expr& expression) const {
    return expression.substitute(
        [&](std::string_view name) { return name == symbol_ ? std::optional(Expr(keys_)) : std::nullopt; });
  }
  /// Whether keys run along one dimension at most, and nothing else does.
  bool has_one_of_keys(const Shape& shape) const {
    int64_t count = 0;
    for (const Expr& extent : shape) {
      if (!mentions_keys(extent)) continue;
      if (extent != Expr::symbol(symbol_)) return false;
      ++count;
    }
    return count <= 1;
  }

  Value* remake(Value* value) {
    if (!value || !value->has_shape() || !has_one_of_keys(value->shape())) return nullptr;
    if (value->kind == ValueKind::constant || value->kind == ValueKind::state) return value->changing ? nullptr : value;
    const Node* node = value->producer;
    if (!node || !node->domain.empty() || node->outputs.size() != 1) return nullptr;
    std::vector<Value*> operands;
    if (node->is("Range")) {
      // From a number, in steps of one, for each key.
      const auto start = rewrite::contents(node->input(0)), limit = rewrite::contents(node->input(1)),
                 step = rewrite::contents(node->input(2));
      if (!start || !limit || !step || !step->at(0).is(1) || mentions_keys(start->at(0)) ||
          !(limit->at(0) - start->at(0) == Expr::symbol(symbol_)))
        return nullptr;
      operands = {node->inputs[0], list({with_keys(limit->at(0))}, true), node->inputs[2]};
    } else if (rewrite::is_elementwise(*node) || node->is("Transpose")) {
      for (Value* operand : node->inputs) operands.push_back(make(operand));
    } else if (node->is("Reshape") || node->is("Expand") || node->is("Tile")) {
      const auto shape = rewrite::contents(node->input(1));
      if (!shape || (node->is("Tile") && std::any_of(shape->begin(), shape->end(),
                                                     [&](const Expr& times) { return mentions_keys(times); })))
        return nullptr;
      std::vector<Expr> wanted;
      for (const Expr& extent : *shape) wanted.push_back(with_keys(extent));
      operands = {make(node->input(0)), list(wanted, false)};
    }
    if (operands.empty() || std::find(operands.begin(), operands.end(), nullptr) != operands.end()) return nullptr;
    return rewrite::emit(graph_, node->op_type, operands, before_, node->attributes);
  }

  Value* list(const std::vector<Expr>& elements, bool scalar) {
    if (const auto numbers = constants_of(elements)) return graph_.constant_int64(*numbers, scalar);
    return graph_.add_expression("extents", elements, scalar);
  }

  Graph& graph_;
  const std::string& symbol_;
  int64_t keys_;
  const Node* before_;
  std::map<Value*, Value*> made_;
};

}  // namespace

Value* longer_mask(Graph& graph, Value* mask, const std::string& symbol, int64_t keys, const Node* before) {
  const size_t rank = mask->rank();
  const bool is_row =
      rank > 0 && mask->shape().back() == Expr::symbol(symbol) && (rank == 1 || mask->shape()[rank - 2].is(1));
  return is_row ? LongerMask(graph, symbol, keys, before).make(mask) : nullptr;
}

}  // namespace tessera::generate
