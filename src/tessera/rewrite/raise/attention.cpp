#include "tessera/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/ir/aligned.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/op.h"
#include "tessera/rewrite/edit.h"
#include "tessera/rewrite/passes.h"
#include "tessera/rewrite/raise/affine.h"
#include "tessera/rewrite/raise/attention_heads.h"
#include "tessera/rewrite/raise/causal.h"
#include "tessera/rewrite/raise/match.h"

//   Softmax(scale·Q·Kᵀ + mask)·V   becomes   Attention(Q, K, V, mask)
//   Softmax(cap·tanh(scale·Q·Kᵀ / cap) + mask)·V   becomes the same with a softcap
//   Slice(Softmax(Concat(scale·Q·Kᵀ + mask, sink)))·V   becomes the same with a sink (ops/attention.h)
// with Q [batch, heads, queries, width], K and V [batch, key heads, keys, width]. The mask j ≤ i becomes the attribute
// is_causal, and one that shows the keys around each query windows; the repetition of key heads for their group of
// queries is removed.
namespace tessera::rewrite {
namespace {

struct Mask {
  Value* operand = nullptr;  ///< bool or added; null if there is none
  bool causal = false;
  int64_t left = -1, right = -1;  ///< windows; -1: without a bound

  std::vector<Attribute> attributes() const {
    std::vector<Attribute> all = {attribute("is_causal", int64_t{causal})};
    if (left >= 0) all.push_back(attribute("left_window_size", left));
    if (right >= 0) all.push_back(attribute("right_window_size", right));
    return all;
  }
};

// The mask as attributes; nullopt if it is not known, or if attributes cannot express it: windows need keys at the
// positions of the queries.
std::optional<Mask> as_attributes(const AffineAnalysis& analysis, const Value* mask, const Shape& scores) {
  const auto seen = seen_keys(analysis, mask, scores);
  if (!seen) return std::nullopt;
  if (seen->is_causal()) return Mask{nullptr, true};
  if (!seen->left || !seen->right || scores[scores.size() - 2] != scores.back()) return std::nullopt;
  const bool causal = *seen->right == 0;
  return Mask{nullptr, causal, *seen->left, causal ? -1 : *seen->right};
}

Mask simplified(const AffineAnalysis& analysis, Value* mask, const Shape& scores) {
  while (Node* expand = made_by(mask, "Expand")) mask = expand->inputs[0];
  if (mask->dtype() == DType::boolean) {
    auto everywhere = scalar_of(mask);
    if (everywhere && *everywhere != 0) return {};
    return as_attributes(analysis, mask, scores).value_or(Mask{mask});
  }
  if (auto everywhere = scalar_of(mask); everywhere && *everywhere == 0) return {};
  return as_attributes(analysis, mask, scores).value_or(Mask{mask});
}

/// A mask whose last extent is `keys`: Attention takes a shorter one to hide the remaining keys, whereas the replaced
/// operators broadcast it.
Value* over_keys(Graph& graph, Value* mask, const Expr& keys, const Node* before) {
  if (!mask || (mask->rank() > 0 && mask->shape().back() == keys)) return mask;
  Shape shape = mask->rank() > 0 ? mask->shape() : Shape{1, keys};
  shape.back() = keys;
  return expanded(graph, mask, shape, before);
}

/// Undoes the repetition of key or value heads, Reshape(Expand(Reshape(x, [b, g, 1, t, d]), [b, g, r, t, d]),
/// [b, g·r, t, d]): gives [b, g, t, d]; null if there is none.
Value* without_repetition(Graph& graph, Value* value, const Node* before) {
  Node* merge = made_by(value, "Reshape");
  Node* expand = merge ? made_by(merge->inputs[0], "Expand") : nullptr;
  if (!expand) return nullptr;
  const Shape& one = expand->inputs[0]->shape();
  const Shape& many = expand->outputs[0]->shape();
  if (one.size() != 5 || many.size() != 5 || !one[2].is(1)) return nullptr;
  for (size_t d : {0, 1, 3, 4})
    if (!(one[d] == many[d])) return nullptr;
  if (value->shape() != Shape{many[0], many[1] * many[2], many[3], many[4]}) return nullptr;
  Value* column = expand->inputs[0];
  Shape shape = {one[0], one[1], one[3], one[4]};
  if (Node* split = made_by(column, "Reshape"); split && split->inputs[0]->shape() == shape) return split->inputs[0];
  return reshaped(graph, column, shape, before);
}

void drop_repetition(Graph& graph, Value*& key, Value*& value, const Node* before) {
  Value* fewer_keys = without_repetition(graph, key, before);
  Value* fewer_values = fewer_keys ? without_repetition(graph, value, before) : nullptr;
  if (!fewer_values || !(fewer_keys->shape()[1] == fewer_values->shape()[1])) return;
  key = fewer_keys;
  value = fewer_values;
}

/// x with its last two dimensions exchanged, merged with a Transpose before it.
Value* exchanged(Graph& graph, Value* x, const Node* before) {
  std::vector<int64_t> permutation = {0, 1, 2, 3};
  if (Node* transpose = made_by(x, "Transpose")) {
    permutation = transpose->get_ints("perm", {3, 2, 1, 0});
    x = transpose->inputs[0];
  }
  std::swap(permutation[2], permutation[3]);
  return transposed(graph, x, permutation, before);
}

/// Whether batches and heads fit Attention; MatMul would also broadcast them. The key is still [b, heads, width, keys].
bool fit_attention(const Shape& query, const Shape& turned_key, const Shape& value) {
  return query[0] == turned_key[0] && query[0] == value[0] && turned_key[1] == value[1] &&
         Expr::exact_divide(query[1], turned_key[1]).has_value();
}

Value* attention(Graph& graph, Value* query, Value* key, Value* value, const Mask& mask, double scale, double softcap,
                 Value* sink, const Node* before, const std::string& name) {
  std::vector<Value*> operands = {query, key, value};
  if (mask.operand) operands.push_back(mask.operand);
  operands.resize(sink ? ops::kSink + 1 : operands.size());
  if (sink) operands.back() = sink;
  std::vector<Attribute> attributes = mask.attributes();
  attributes.push_back(attribute("scale", static_cast<float>(scale)));
  if (softcap > 0) attributes.push_back(attribute("softcap", static_cast<float>(softcap)));
  return emit(graph, "Attention", operands, before, attributes, name);
}

/// The Softmax whose weights only this operand reads. Exporters put a guard for rows without any key between them,
/// Where(IsNaN(weights), 0, weights); Attention gives zeros for such rows anyway.
Node* softmax_under(const Graph& graph, Value* operand) {
  if (!used_once(graph, operand)) return nullptr;
  Node* where = made_by(operand, "Where");
  if (!where) return made_by(operand, "Softmax");
  Value* weights = where->inputs[2];
  Node* test = made_by(where->inputs[0], "IsNaN");
  const bool guards = test && test->inputs[0] == weights && is_scalar(where->inputs[1], 0) &&
                      weights->shape() == operand->shape() && used_once(graph, test->outputs[0]) &&
                      used_only_by(graph, weights, {where, test});
  return guards ? made_by(weights, "Softmax") : nullptr;
}

/// The values, one for each head, that `column` [batch, heads, queries, 1] repeats; null for other columns.
Value* one_for_each_head(Value* column) {
  const Expr heads = column->shape()[1];
  while (Node* expand = made_by(column, "Expand")) column = expand->inputs[0];
  const Shape& shape = column->shape();
  return shape == Shape{1, heads, 1, 1} || shape == Shape{heads, 1, 1} ? column : nullptr;
}

/// What weights are computed from: a Softmax of the logits, or of logits beside a column of sinks, which is cut off
/// again.
struct Weights {
  Value *logits = nullptr, *sink = nullptr;
};

std::optional<Weights> weights_under(const Graph& graph, Value* operand) {
  const auto along_keys = [](Node* node, int64_t axis) { return axis_of(*node, "axis", axis, 4) == 3; };
  Node* slice = made_by(operand, "Slice");
  if (!slice) {
    Node* softmax = softmax_under(graph, operand);
    if (!softmax || softmax->inputs[0]->rank() != 4 || !along_keys(softmax, -1)) return std::nullopt;
    return Weights{softmax->inputs[0]};
  }
  Node* softmax = made_by(slice->inputs[0], "Softmax");
  if (!softmax || !used_once(graph, operand) || !used_once(graph, slice->inputs[0])) return std::nullopt;
  if (softmax->inputs[0]->rank() != 4 || !along_keys(softmax, -1)) return std::nullopt;
  // Exporters subtract the largest one of each row first, which changes nothing.
  Value* all = softmax->inputs[0];
  Node* difference = made_by(all, "Sub");
  Node* most = difference ? made_by(difference->inputs[1], "ReduceMax") : nullptr;
  if (most && most->inputs[0] == difference->inputs[0] && difference->inputs[1]->rank() == 4 &&
      difference->inputs[1]->shape()[3].is(1) && used_once(graph, all) && used_once(graph, difference->inputs[1]) &&
      used_only_by(graph, difference->inputs[0], {difference, most}))
    all = difference->inputs[0];
  else if (!used_once(graph, all))
    return std::nullopt;
  Node* join = made_by(all, "Concat");
  if (!join || join->inputs.size() != 2 || !along_keys(join, 0)) return std::nullopt;
  Value *logits = join->inputs[0], *column = join->inputs[1];
  const auto starts = ops::content_of(slice->input(1));
  const bool cuts = operand->shape() == logits->shape() && starts && starts->size() == 1 && starts->front().is(0) &&
                    column->rank() == 4 && column->shape()[3].is(1);
  Value* sink = cuts ? one_for_each_head(column) : nullptr;
  if (!sink) return std::nullopt;
  return Weights{logits, sink};
}

/// A mask that hides whatever one of the two hides.
Mask joined(Graph& graph, const Mask& a, const Mask& b, const Node* before) {
  const auto nearer = [](int64_t x, int64_t y) { return x < 0 ? y : y < 0 ? x : std::min(x, y); };
  Mask both;
  both.left = nearer(a.left, b.left);
  both.right = nearer(a.right, b.right);
  both.causal = a.causal || b.causal;
  if (both.causal) both.right = -1;
  if (!a.operand || !b.operand) {
    both.operand = a.operand ? a.operand : b.operand;
    return both;
  }
  const bool a_is_bool = a.operand->dtype() == DType::boolean, b_is_bool = b.operand->dtype() == DType::boolean;
  if (a_is_bool == b_is_bool) {
    both.operand = emit(graph, a_is_bool ? "And" : "Add", {a.operand, b.operand}, before);
  } else {
    Value* added = a_is_bool ? b.operand : a.operand;
    Value* lowest = graph.constant_scalar(added->dtype(), -std::numeric_limits<double>::infinity());
    both.operand = emit(graph, "Where", {a_is_bool ? a.operand : b.operand, added, lowest}, before);
  }
  return both;
}

/// Whether the mask may hide keys. It does not if it is computed from moderate parameters and positions, as ALiBi's is.
bool may_hide_keys(const Value* mask) {
  constexpr float kMost = 1e4F;
  constexpr size_t kMostValues = 64;
  std::vector<const Value*> queue{mask};
  for (size_t next = 0; next < queue.size(); ++next) {
    const Value* at = queue[next];
    if (at->dtype() == DType::boolean || at->kind == ValueKind::input || at->changing || next > kMostValues)
      return true;
    if (at->content || is_integer(at->dtype())) {
      if (at->kind != ValueKind::result) continue;
    } else if (at->kind != ValueKind::result) {
      if (at->dtype() != DType::float32 || !at->data.data) return true;
      const Tensor held = aligned(at->data);
      const auto elements = held.as<float>();
      if (!std::all_of(elements.begin(), elements.end(), [](float e) { return std::abs(e) <= kMost; })) return true;
      continue;
    }
    const Node& node = *at->producer;
    if (node.is("Range")) continue;
    const bool multiplies = node.is("Mul") || node.is("Add") || node.is("Sub") || node.is("Neg");
    if (!multiplies && ops::moves_of(node) == ops::Moves::nothing && !node.is("Cast")) return true;
    for (const Value* operand : node.inputs)
      if (operand) queue.push_back(operand);
  }
  return false;
}

/// Logits as a scaled product of queries and keys, perhaps capped, with masks.
struct Logits {
  Node* product = nullptr;
  double scale = 1, softcap = 0;
  std::vector<Value*> masks;     ///< bool, or added
  bool is_bounded = false;       ///< some mask hides by finite numbers
  bool is_capped_below = false;  ///< no score is minus infinity: rows whose keys are all hidden have weights, too

  /// Reads the graph backwards from the operand of the softmax, through values that have no other use.
  static std::optional<Logits> read(Graph& graph, const AffineAnalysis& analysis, Value* value, const Shape& shape) {
    if (value->shape() != shape || !used_once(graph, value)) return std::nullopt;
    Logits found;
    if (found.read_product(graph, value, shape)) return found;
    if (Value* tanh = without_scale(value, found.softcap = 1); Node* cap = made_by(tanh, "Tanh"))
      if (found.softcap > 0 && used_once(graph, tanh) && found.read_product(graph, cap->inputs[0], shape)) {
        found.scale *= found.softcap;
        return found;
      }
    const Node* node = value->producer;
    if (!node) return std::nullopt;
    if (node->is("Add"))
      for (size_t i : {0, 1})
        if (auto inner = read(graph, analysis, node->inputs[i], shape)) {
          inner->masks.push_back(node->inputs[1 - i]);
          return inner;
        }
    // The lowest number replaces minus infinity, to which the sum of a score and a mask may overflow.
    if (node->is("Max") && node->inputs.size() == 2)
      for (size_t i : {0, 1})
        if (const auto least = scalar_of(node->inputs[1 - i]); least && is_minus_infinity(node->inputs[1 - i]))
          if (auto inner = read(graph, analysis, node->inputs[i], shape); inner && !inner->masks.empty()) {
            inner->is_capped_below = true;
            return inner;
          }
    if (node->is("Where"))
      for (size_t i : {1, 2}) {
        // A finite number hides a key only from queries that see another one.
        const auto hidden = scalar_of(node->inputs[3 - i]);
        if (!is_minus_infinity(node->inputs[3 - i])) continue;
        if (!std::isinf(*hidden)) {
          const auto keys = seen_keys(analysis, node->inputs[0], shape, i == 2);
          if (!keys || !(keys->is_causal() || shape[2] == shape[3])) continue;
        }
        auto inner = read(graph, analysis, node->inputs[i], shape);
        if (!inner) continue;
        inner->is_bounded |= !std::isinf(*hidden);
        inner->masks.push_back(i == 1 ? node->inputs[0] : emit(graph, "Not", {node->inputs[0]}, node));
        return inner;
      }
    return std::nullopt;
  }

 private:
  bool read_product(Graph& graph, Value* scaled, const Shape& shape) {
    double outer = 1;
    Value* value = without_scale(scaled, outer);
    if (value->shape() != shape || !used_once(graph, value)) return false;
    product = made_by(value, "MatMul");
    scale = outer;
    return product != nullptr;
  }
};

/// Matches `node` = MatMul(Softmax(scores), V).
bool raise_spelt_out(Graph& graph, const AffineAnalysis& analysis, Node* node) {
  Value* value = node->inputs[1];
  if (value->dtype() == DType::float64) return false;  // no kernel computes float64 Attention
  const auto weights = weights_under(graph, node->inputs[0]);
  if (!weights || value->rank() != 4) return false;
  const Shape shape = weights->logits->shape();
  const auto logits = Logits::read(graph, analysis, weights->logits, shape);
  if (!logits) return false;
  const Node* scores = logits->product;
  double scale = logits->scale;
  Value* query = without_scale(scores->inputs[0], scale);
  Value* turned_key = without_scale(scores->inputs[1], scale);
  if (query->rank() != 4 || turned_key->rank() != 4) return false;
  if (!fit_attention(query->shape(), turned_key->shape(), value->shape())) return false;
  // If one mask is known and hides by finite numbers, and others hide keys, too, a row may see no key. Its weights then
  // differ from Attention's.
  Mask simple;
  bool is_known = false, may_hide = false;
  for (Value* mask : logits->masks) {
    const Mask one = simplified(analysis, mask, shape);
    is_known |= !one.operand;
    may_hide |= one.operand && may_hide_keys(one.operand);
    simple = joined(graph, simple, one, node);
  }
  if (logits->masks.size() > 1 && may_hide && (is_known || logits->is_bounded)) return false;
  if (logits->is_capped_below && simple.operand) return false;
  simple.operand = over_keys(graph, simple.operand, shape.back(), node);
  Value* key = exchanged(graph, turned_key, node);
  if (Node* transpose = made_by(turned_key, "Transpose")) {
    double inner = 1;
    Value* unscaled = without_scale(transpose->inputs[0], inner);
    if (unscaled != transpose->inputs[0]) {
      std::vector<int64_t> permutation = transpose->get_ints("perm", {3, 2, 1, 0});
      std::swap(permutation[2], permutation[3]);
      key = transposed(graph, unscaled, permutation, node);
      scale *= inner;
    }
  }
  drop_repetition(graph, key, value, node);
  ops::NodeBuilder b(graph, node->outputs[0]->name + ".sink", node);
  Value* sink = weights->sink ? b.reshape(weights->sink, {shape[1]}) : nullptr;
  Value* raised =
      attention(graph, query, key, value, simple, scale, logits->softcap, sink, node, node->outputs[0]->name);
  return replace(graph, node->outputs[0], raised);
}

/// Simplifies an exporter's own Attention: operands of rank 3 become rank 4; repeated heads and needless masks go.
void simplify_attention(Graph& graph, const AffineAnalysis& analysis, Node* node) {
  node = with_heads_apart(graph, node);
  if (node->input(4) || node->input(6)) return;  // with a cache, K does not hold all keys
  Value* key = node->inputs[1];
  Value* value = node->inputs[2];
  drop_repetition(graph, key, value, node);
  graph.set_input(node, 1, key);
  graph.set_input(node, 2, value);
  if (!node->input(3)) return;
  // A mask of fewer keys hides the remaining ones, too.
  if (node->inputs[3]->shape().back() != key->shape()[2]) return;
  Shape scores = {node->inputs[0]->shape()[0], node->inputs[0]->shape()[1], node->inputs[0]->shape()[2],
                  key->shape()[2]};
  Mask mask = simplified(analysis, node->inputs[3], scores);
  const bool keeps_windows = node->outputs.size() == 1 && !node->find_attribute("left_window_size") &&
                             !node->find_attribute("right_window_size") && node->get_int("is_causal", 0) == 0;
  if (mask.left >= 0 && !keeps_windows) mask = {node->inputs[3]};
  if (mask.operand) mask.operand = over_keys(graph, mask.operand, node->inputs[3]->shape().back(), node);
  graph.set_input(node, 3, mask.operand);
  for (const Attribute& given : mask.attributes())
    if (given.name != "is_causal" || mask.causal) node->set(given.name, given.value);
}

}  // namespace

void raise_attention(OnnxModel& model) {
  Graph& graph = *model.graph;
  AffineAnalysis analysis(graph);
  for (Node* node : nodes_of(graph)) {
    if (node->is("MatMul")) raise_spelt_out(graph, analysis, node);
    if (node->is("Attention")) simplify_attention(graph, analysis, node);
  }
  graph.erase_dead();
}

}  // namespace tessera::rewrite
