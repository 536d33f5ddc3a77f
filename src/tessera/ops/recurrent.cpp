#include "tessera/ops/dims.h"
#include "tessera/ops/gradients.h"
#include "tessera/ops/infer.h"
#include "tessera/ops/recurrent_cell.h"
#include "tessera/ops/registry.h"
#include "tessera/ops/require.h"
#include "tessera/ops/split_form.h"

namespace tessera::ops {
namespace {

// An RNN, GRU or LSTM over x [t, n, i] with weights [d, gates·h, i], recurrence [d, gates·h, h], biases
// [d, 2·gates·h]; optionally lengths [n], states [d, n, h] and peepholes [d, 3·h]. Gives the states at all times
// [t, d, n, h] and the last ones [d, n, h]. With layout = 1, n comes first everywhere.
constexpr size_t kLengths = 4, kHidden = 5, kCell = 6, kPeepholes = 7;

struct RecurrentDims {
  Expr t, n, i, d, h;
  bool batch_first = false;
};

RecurrentDims recurrent_dims(const Node& node) {
  const Shape &x = require_rank(node, 0, "the sequence", 3), &weights = require_rank(node, 1, "the weights", 3),
              &recurrence = require_rank(node, 2, "the recurrence", 3);
  RecurrentDims dims;
  dims.batch_first = node.get_int("layout", 0) != 0;
  dims.t = x[dims.batch_first ? 1 : 0];
  dims.n = x[dims.batch_first ? 0 : 1];
  dims.i = require_equal(node, x[2], weights[2], "the sequence's width", "the weights' width");
  dims.d = node.get_string("direction", "forward") == "bidirectional" ? 2 : 1;
  dims.h = recurrence[2];
  require_equal(node, weights[0], dims.d, "the weights' first dimension", "the number of directions");
  require_equal(node, recurrence[0], dims.d, "the recurrence's first dimension", "the number of directions");
  for (const Shape* rows : {&weights, &recurrence})
    require_equal(node, (*rows)[1], RecurrentCell::gates_of(node) * dims.h, "the rows of its weights",
                  "gates times hidden size");
  if (node.input(3))
    require_equal(node, require_rank(node, 3, "the bias", 2)[1], 2 * RecurrentCell::gates_of(node) * dims.h,
                  "the bias's elements", "twice gates times hidden size");
  return dims;
}

/// [d, n, h], or [n, d, h].
Shape state_shape(const RecurrentDims& dims) {
  return dims.batch_first ? Shape{dims.n, dims.d, dims.h} : Shape{dims.d, dims.n, dims.h};
}

/// Whole or split over units, a recurrence must mean the same: what one form lacks, both refuse.
void require_known_form(const Node& node) {
  const std::string direction = node.get_string("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    fail_node(node, "its direction is '{}'; it can be forward, reverse or bidirectional", direction);
  if (const float* clip = node.get<float>("clip"); clip && !(*clip > 0))
    fail_node(node, "its clip is {}; it must be above 0, or be left out", *clip);
  const auto* activations = node.get<std::vector<std::string>>("activations");
  if (!activations || activations->empty()) return;
  const size_t needed = (node.is("LSTM") ? 3U : node.is("GRU") ? 2U : 1U) * RecurrentCell::backwards_of(node).size();
  if (activations->size() != needed)
    fail_node(node, "it has {} activations; {} are needed", activations->size(), needed);
  for (const std::string& name : *activations)
    if (name != "Sigmoid" && name != "Tanh" && name != "Relu")
      fail_node(node, "the activation {} is not supported; use Sigmoid, Tanh or Relu", name);
}

void infer_recurrent(Node& node) {
  require_known_form(node);
  DType dtype = require_same_dtype(node, {0, 1, 2, 3, kHidden, kCell, kPeepholes});
  RecurrentDims dims = recurrent_dims(node);
  set_result(node, 0, dtype,
             dims.batch_first ? Shape{dims.n, dims.t, dims.d, dims.h} : Shape{dims.t, dims.d, dims.n, dims.h});
  set_result(node, 1, dtype, state_shape(dims));
  if (node.is("LSTM")) set_result(node, 2, dtype, state_shape(dims));
}

/// Sequences are independent of each other; times and directions are whole. Hidden units lie in every gate; all of them
/// count for each at the next step.
Rule recurrent_rule(const Node& node) {
  RecurrentDims dims = recurrent_dims(node);
  Rule rule = blank_rule(node);
  const DimFactors n{rule.add("n", dims.n)}, h{rule.add("h", dims.h, FactorKind::units)};
  const DimFactors t{rule.add("t", dims.t, FactorKind::whole)}, d{rule.add("d", dims.d, FactorKind::whole)};
  const bool resets_before = node.is("GRU") && node.get_int("linear_before_reset", 0) == 0;
  rule.factors[h[0]].rounds = (node.output(0) ? Expr(1) : dims.t) * (resets_before ? 2 : 1);
  // The units of several gates.
  const auto of_gates = [&](std::string name, int64_t gates) {
    return gates == 1 ? h : DimFactors{rule.add(std::move(name), gates, FactorKind::whole), h[0]};
  };
  const std::vector<DimFactors> state = dims.batch_first ? std::vector{n, d, h} : std::vector{d, n, h};
  rule.operands[0][dims.batch_first ? 0 : 1] = n;
  rule.operands[1][1] = rule.operands[2][1] = of_gates("g", RecurrentCell::gates_of(node));
  if (node.input(3)) rule.operands[3][1] = of_gates("biases", 2 * RecurrentCell::gates_of(node));
  if (node.input(kLengths)) rule.operands[kLengths][0] = n;
  for (size_t initial : {kHidden, kCell})
    if (node.input(initial)) rule.operands[initial] = state;
  if (node.input(kPeepholes)) rule.operands[kPeepholes][1] = of_gates("peepholes", 3);
  if (node.output(0)) rule.results[0] = dims.batch_first ? std::vector{n, t, d, h} : std::vector{t, d, n, h};
  for (size_t last = 1; last < node.outputs.size(); ++last)
    if (node.output(last)) rule.results[last] = state;
  return rule;
}

Expr recurrent_flops(const Node& node) {
  RecurrentDims dims = recurrent_dims(node);
  return 2 * RecurrentCell::gates_of(node) * dims.t * dims.n * dims.d * dims.h * (dims.i + dims.h);
}

}  // namespace

std::vector<OpDef> recurrent_ops() {
  std::vector<OpDef> ops;
  for (std::string_view type : {"RNN", "GRU", "LSTM"})
    ops.push_back({.type = type,
                   .infer = infer_recurrent,
                   .rule = recurrent_rule,
                   .flops = recurrent_flops,
                   .localize = localize_recurrent,
                   .gradient = recurrent_gradient});
  return ops;
}

}  // namespace tessera::ops
