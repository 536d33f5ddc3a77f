#include "tessera/ops/examples/examples.h"
#include "tessera/ops/gradients/gradients.h"
#include "tessera/ops/library/dims.h"
#include "tessera/ops/library/infer.h"
#include "tessera/ops/library/recurrent_cell.h"
#include "tessera/ops/library/require.h"
#include "tessera/ops/local/form.h"
#include "tessera/ops/registry.h"

namespace tessera::ops {
namespace {

// An RNN, GRU or LSTM over x [t, n, i] with weights [d, gates·h, i], recurrence [d, gates·h, h], biases
// [d, 2·gates·h]; optionally lengths [n], states [d, n, h] and peepholes [d, 3·h]. Gives the states at all times
// [t, d, n, h] and the last ones [d, n, h]. With layout = 1, n comes first everywhere.
using enum RecurrentCell::At;

struct RecurrentDims {
  Expr t, n, i, d, h;
  bool batch_first = false;
};

void require_shape(const Node& node, size_t operand, const char* name, const Shape& wanted) {
  if (!node.input(operand)) return;
  const Shape& shape = require_rank(node, operand, name, wanted.size());
  for (size_t d = 0; d < wanted.size(); ++d)
    require_equal(node, shape[d], wanted[d], fmt::format("dimension {} of {}", d, name), "that of the other operands");
}

/// [d, n, h], or [n, d, h].
Shape state_shape(const RecurrentDims& dims) {
  return dims.batch_first ? Shape{dims.n, dims.d, dims.h} : Shape{dims.d, dims.n, dims.h};
}

RecurrentDims recurrent_dims(const Node& node) {
  const Shape& x = require_rank(node, kSequence, "the sequence", 3);
  RecurrentDims dims;
  dims.batch_first = node.get_int("layout", 0) != 0;
  dims.t = x[dims.batch_first ? 1 : 0];
  dims.n = x[dims.batch_first ? 0 : 1];
  dims.i = require_equal(node, x[2], require_rank(node, kWeights, "the weights", 3)[2], "the sequence's width",
                         "the weights' width");
  dims.d = node.get_string("direction", "forward") == "bidirectional" ? 2 : 1;
  dims.h = require_rank(node, kRecurrence, "the recurrence", 3)[2];
  const Expr rows = RecurrentCell::gates_of(node) * dims.h;
  require_shape(node, kWeights, "the weights", {dims.d, rows, dims.i});
  require_shape(node, kRecurrence, "the recurrence", {dims.d, rows, dims.h});
  require_shape(node, kBias, "the bias", {dims.d, 2 * rows});
  require_shape(node, kLengths, "the lengths", {dims.n});
  require_shape(node, kHidden, "the initial state", state_shape(dims));
  require_shape(node, kCell, "the initial cell state", state_shape(dims));
  require_shape(node, kPeepholes, "the peepholes", {dims.d, 3 * dims.h});
  return dims;
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
  const size_t needed = RecurrentCell::usual_activations(node).size() * RecurrentCell::backwards_of(node).size();
  if (activations->size() != needed)
    fail_node(node, "it has {} activations; {} are needed", activations->size(), needed);
  for (const std::string& name : *activations)
    if (name != "Sigmoid" && name != "Tanh" && name != "Relu")
      fail_node(node, "the activation {} is not supported; use Sigmoid, Tanh or Relu", name);
}

void infer_recurrent(Node& node) {
  require_known_form(node);
  DType dtype = require_same_dtype(node, {kSequence, kWeights, kRecurrence, kBias, kHidden, kCell, kPeepholes});
  if (node.input(kLengths) && node.input(kLengths)->dtype() != DType::int32)
    fail_node(node, "its lengths are {}; they must be int32", name_of(node.input(kLengths)->dtype()));
  RecurrentDims dims = recurrent_dims(node);
  set_result(node, 0, dtype,
             dims.batch_first ? Shape{dims.n, dims.t, dims.d, dims.h} : Shape{dims.t, dims.d, dims.n, dims.h});
  set_result(node, 1, dtype, state_shape(dims));
  if (node.is("LSTM")) set_result(node, 2, dtype, state_shape(dims));
}

/// Sequences are independent of each other; times and directions are whole. Every gate has all hidden units; all of
/// them count for each at the next step.
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
  rule.operands[kSequence][dims.batch_first ? 0 : 1] = n;
  rule.operands[kWeights][1] = rule.operands[kRecurrence][1] = of_gates("g", RecurrentCell::gates_of(node));
  if (node.input(kBias)) rule.operands[kBias][1] = of_gates("biases", 2 * RecurrentCell::gates_of(node));
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
                   .gradient = recurrent_gradient,
                   .examples = recurrent_examples});
  return ops;
}

}  // namespace tessera::ops
