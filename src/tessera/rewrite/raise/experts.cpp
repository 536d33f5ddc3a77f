#include <algorithm>

#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"
#include "tessera/rewrite/raise/contraction.h"
#include "tessera/rewrite/raise/match.h"
#include "tessera/rewrite/raise/match_experts.h"

// A mixture of experts, in one of two forms, becomes Experts, which computes what is chosen, and reads each expert's
// matrices once. With tokens t, choices c, experts e, elements i of a token, f hidden and o of a result, as Einsums:
//
//   gathered, once for each choice:
//     h = act (ti,tcif→tcf (x, w1[choices]))
//     tc,tcf,tcfo→to (weights, h, w2[choices])
//   stacked, as all experts take all tokens:
//     h = act (ti,eif→tef (x, w1))
//     te,tef,efo→to (matrix, h, w2)
//   → Experts (x, choices, weights, w1, w2)
//
// where the matrix [tokens, experts] holds weights, which are zeros but for what TopK chose. Biases may be added to
// both products. How dimensions are ordered, merged and repeated on the way does not matter (contraction.h); t may be
// several.
//
// The sum over choices is then in the order of experts, and a weight multiplies hidden elements, not results: only the
// roundings differ. Experts that a token does not choose are not computed: an infinite or NaN result of theirs gives
// NaN in the stacked form, even if its weight is zero, but not after raising.
namespace tessera::rewrite {
namespace {

using Indices = std::vector<int>;

Indices joined(Indices a, const Indices& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

bool are_same(Indices a, Indices b) {
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  return a == b;
}

/// A stack that is gathered along its first dimension by the elements of `choices`, in their order.
struct Gathered {
  Value *stack = nullptr, *choices = nullptr;
  size_t rank = 0;  ///< how many dimensions the indices become
};

std::optional<Gathered> gathered(const Value* value) {
  const Node* node = value->producer;
  if (!node || !(node->is("Gather") || node->is("GatherND"))) return std::nullopt;
  const Value* indices = node->inputs[1];
  size_t rank = indices->rank();
  if (node->is("Gather") && axis_of(*node, "axis", 0, node->inputs[0]->rank()) != 0) return std::nullopt;
  if (node->is("GatherND")) {
    if (node->get_int("batch_dims", 0) != 0 || rank == 0 || !indices->shape().back().is(1)) return std::nullopt;
    --rank;
  }
  Value* choices = without_reshapes(node->inputs[1]);
  return choices->rank() >= 2 ? std::optional(Gathered{node->inputs[0], choices, rank}) : std::nullopt;
}

class Mixture {
 public:
  Mixture(Graph& graph, Node* sum) : graph_(graph), sum_(sum) {}

  bool raise() {
    const Factor result = indices_.whole(sum_->outputs[0]);
    tokens_ = indices_.flat(result);
    if (tokens_.empty()) return false;
    const int out = tokens_.back();
    tokens_.pop_back();  // in the result's order; the weights' may differ
    const auto factors = read_factors(result);
    if (factors.size() < 2 || !read_routing(factors)) return false;
    std::vector<Factor> others;
    for (const Factor& factor : factors)
      if (factor.value != weights_) others.push_back(factor);
    if (others.size() + 1 != factors.size()) return false;  // a square of the weights
    // Without their bias, results are two factors.
    if (others.size() == 1 && !is_along(others[0], out)) return false;
    const auto results = others.size() == 1 ? read_product(others[0]) : std::optional(Product{others, std::nullopt});
    if (!results || results->factors.size() != 2) return false;
    for (const size_t i : {0, 1}) {
      const Factor& hidden = results->factors[1 - i];
      const auto down = read_stack(results->factors[i], {-1, out});
      const auto unit = down ? hidden_unit(graph_, hidden.value) : std::nullopt;
      if (!unit || !read_hidden(hidden, *unit, down->along[0])) continue;
      const auto bias = results->bias ? read_stack(*results->bias, {out}) : std::nullopt;
      return (bias || !results->bias) &&
             used_only_between(graph_, x_, result.value, {weights_, routing_.weights, routing_.choices}) &&
             emit(result, down, bias, *unit);
    }
    return false;
  }

 private:
  /// A product's factors, and what is added to it.
  struct Product {
    std::vector<Factor> factors;
    std::optional<Factor> bias;
  };

  /// The parameters of all experts.
  struct Stack {
    Value* value = nullptr;
    Shape shape;          ///< without dimensions of one element: [experts, in, out], or [experts, out] of a bias
    Indices along;        ///< its indices but that of experts, [in, out]
    bool turned = false;  ///< its shape is [experts, out, in]
  };

  Indices tokens() const { return indices_.parts(tokens_); }

  /// Whether the factor has this index beside those of tokens, and experts or choices, in any order, and no others.
  bool is_along(const Factor& factor, int index) const {
    return are_same(indices_.flat(factor), joined(joined(tokens(), each_), {index}));
  }

  /// Reading ends at gathered values, at hidden elements, and at values with a row for each token, such as weights and
  /// tokens.
  std::vector<Factor> read_factors(const Factor& result) {
    const Indices all = indices_.flat(result);
    auto factors = indices_.factors(result, [&](const Factor& factor) {
      if (gathered(factor.value) || hidden_unit(graph_, factor.value)) return true;
      Indices row = indices_.flat(factor);
      if (row.size() == tokens().size() + 1 && row.back() != all.back()) row.pop_back();
      return are_same(row, tokens());
    });
    return factors ? std::move(*factors) : std::vector<Factor>{};
  }

  /// Finds the factor that holds the weights, and the index of experts or choices.
  bool read_routing(const std::vector<Factor>& factors) {
    Value* choices = nullptr;
    for (const Factor& factor : factors) {
      if (const auto routing = routing_of_matrix(factor.value)) {
        is_stacked_ = true;
        routing_ = *routing;
      } else if (Value* behind = choices_behind(factor)) {
        choices = behind;
      }
    }
    if (!is_stacked_ && !choices) return false;
    const Expr extent = is_stacked_ ? Expr(routing_.experts) : choices->shape().back();
    for (const Factor& factor : factors) {
      if (is_stacked_ && !routing_of_matrix(factor.value)) continue;
      Indices row = indices_.flat(factor);
      if (row.size() != tokens().size() + (extent.is(1) ? 0 : 1)) continue;
      each_.assign(row.begin() + static_cast<long>(tokens().size()), row.end());
      row.resize(tokens().size());
      if (!are_same(row, tokens()) || (!each_.empty() && indices_.extent(each_[0]) != extent)) continue;
      tokens_ = row;
      weights_ = factor.value;
      if (!is_stacked_) routing_ = {choices, weights_, 0};
      return !is_stacked_ || !each_.empty();
    }
    return false;
  }

  /// The choices that gather the factor, or a factor of the product that it is, perhaps with a bias.
  Value* choices_behind(const Factor& factor) {
    if (const auto found = gathered(factor.value)) return found->choices;
    const auto product = made_by(factor.value, "Add") ? read_product(factor) : std::nullopt;
    if (!product) return nullptr;
    for (const Factor& each : product->factors)
      if (const auto found = gathered(each.value)) return found->choices;
    return nullptr;
  }

  /// A product, or the sum of a product and a bias.
  std::optional<Product> read_product(const Factor& result) {
    // Changes of shape may come between a product and its Add.
    const std::vector<Factor> read = read_factors(result);
    if (read.size() != 1) return Product{read, std::nullopt};
    const Node* add = made_by(read[0].value, "Add");
    for (size_t i = 0; add && i < 2; ++i) {
      const auto product = indices_.operand(read[0], add->inputs[i]);
      const auto added = indices_.operand(read[0], add->inputs[1 - i]);
      if (!product || !added) break;
      const std::vector<Factor> factors = read_factors(*product), bias = read_factors(*added);
      if (factors.size() == 2 && bias.size() == 1) return Product{factors, bias[0]};
    }
    return std::nullopt;
  }

  /// The stack whose indices, without that of experts, are `along`, in any order; -1 stands for any index.
  std::optional<Stack> read_stack(const Factor& factor, const Indices& along) {
    Stack stack{.value = factor.value};
    size_t first = 0;  // dimension after those of experts
    if (is_stacked_) {
      while (first < factor.dims.size() && factor.dims[first].empty()) ++first;
      if (indices_.flat(factor, 0, ++first) != each_) return std::nullopt;
      stack.shape.emplace_back(routing_.experts);
    } else {
      const auto found = gathered(factor.value);
      if (!found || found->choices != routing_.choices) return std::nullopt;
      first = found->rank;
      if (indices_.flat(factor, 0, first) != joined(tokens(), each_)) return std::nullopt;
      stack.value = found->stack;
      stack.shape.push_back(found->stack->shape()[0]);
    }
    for (size_t d = first; d < factor.dims.size(); ++d) {
      const Indices one = indices_.flat(factor, d, d + 1);
      if (one.size() > 1) return std::nullopt;
      if (one.empty()) continue;
      stack.along.push_back(one[0]);
      stack.shape.push_back(indices_.extent(one[0]));
    }
    if (stack.along.size() != along.size()) return std::nullopt;
    if (stack.along.back() != along.back()) {
      std::swap(stack.along.front(), stack.along.back());
      stack.turned = true;
    }
    const bool fits = std::equal(along.begin(), along.end(), stack.along.begin(),
                                 [](int wants, int has) { return wants < 0 || has == wants; });
    return fits ? std::optional(stack) : std::nullopt;
  }

  /// The product, or both of a gated unit, from which hidden elements with the index `inner` are computed.
  bool read_hidden(const Factor& hidden, const HiddenUnit& unit, int inner) {
    if (!is_along(hidden, inner)) return false;
    x_ = nullptr;
    const auto read = [&](Value* value, std::optional<Stack>& matrices, std::optional<Stack>& bias) {
      const Shape &shape = value->shape(), &like = hidden.value->shape();
      if (shape.size() != like.size() || !std::equal(shape.begin(), shape.end() - 1, like.begin())) return false;
      Factor factor{value, hidden.dims};
      Indices columns{inner};
      if (shape.back() != like.back()) {  // columns of both kinds, if they are fused
        if (indices_.flat(hidden, hidden.dims.size() - 1) != columns) return false;
        columns = factor.dims.back() = indices_.index(shape.back());
      }
      const auto product = read_product(factor);
      if (!product || product->factors.size() != 2) return false;
      for (const size_t i : {0, 1}) {
        const Factor& x = product->factors[1 - i];
        matrices = read_stack(product->factors[i], {-1, columns[0]});
        if (!matrices || indices_.flat(x) != joined(tokens(), {matrices->along[0]})) continue;
        if (x_ && x_ != x.value) return false;
        x_ = x.value;
        width_ = indices_.extent(matrices->along[0]);
        if (product->bias) bias = read_stack(*product->bias, columns);
        return bias || !product->bias;
      }
      return false;
    };
    return read(unit.gate, gate_, gate_bias_) && (!unit.up || read(unit.up, up_, up_bias_));
  }

  bool emit(const Factor& result, const std::optional<Stack>& down, const std::optional<Stack>& down_bias,
            const HiddenUnit& unit) {
    Shape tokens;
    for (const int each : this->tokens()) tokens.push_back(indices_.extent(each));
    const Expr count = product(tokens);
    const auto upright = [&](const std::optional<Stack>& stack) -> Value* {
      if (!stack) return nullptr;
      Value* value = reshaped(graph_, stack->value, stack->shape, sum_);
      return stack->turned ? transposed(graph_, value, {0, 2, 1}, sum_) : value;
    };
    const auto with_tokens = [&](Value* value, const Expr& last) {
      return reshaped(graph_, value, {count, last}, sum_);
    };
    const Expr choices = routing_.choices->shape().back();
    std::vector<Value*> operands(ExpertsOperand::offset);
    operands[ExpertsOperand::tokens] = with_tokens(x_, width_);
    operands[ExpertsOperand::choices] = with_tokens(routing_.choices, choices);
    operands[ExpertsOperand::weights] = with_tokens(routing_.weights, choices);
    operands[ExpertsOperand::gate] = upright(gate_);
    operands[ExpertsOperand::down] = upright(down);
    operands[ExpertsOperand::gate_bias] = upright(gate_bias_);
    operands[ExpertsOperand::down_bias] = upright(down_bias);
    operands[ExpertsOperand::up] = upright(up_);
    operands[ExpertsOperand::up_bias] = upright(up_bias_);
    Value* y = emit_experts(graph_, operands, unit.attributes, sum_, result.value->name + ".experts");
    if (!y) return false;
    // From the weights' order of tokens to the result's.
    Shape shape = tokens;
    shape.push_back(y->shape().back());
    std::vector<int64_t> order;
    const Indices all = indices_.flat(result), own = this->tokens();
    for (size_t d = 0; d + 1 < all.size(); ++d)
      order.push_back(std::find(own.begin(), own.end(), all[d]) - own.begin());
    order.push_back(static_cast<int64_t>(own.size()));
    y = transposed(graph_, reshaped(graph_, y, shape, sum_), order, sum_);
    return replace(graph_, result.value, reshaped(graph_, y, result.value->shape(), sum_));
  }

  Graph& graph_;
  Node* sum_;
  Contraction indices_;
  Routing routing_;
  bool is_stacked_ = false;
  Indices tokens_, each_;  ///< indices of tokens; of experts if they are stacked, else of choices
  Value *weights_ = nullptr, *x_ = nullptr;
  Expr width_;  ///< of a token
  std::optional<Stack> gate_, gate_bias_, up_, up_bias_;
};

}  // namespace

void raise_experts(OnnxModel& model) {
  Graph& graph = *model.graph;
  for (Node* node : nodes_of(graph))
    if (node->is("ReduceSum") || node->is("MatMul")) Mixture(graph, node).raise();
  graph.erase_dead();
}

}  // namespace tessera::rewrite
