#include "tessera/ops/library/recurrent_cell.h"

#include <string>

namespace tessera::ops {

int64_t RecurrentCell::gates_of(const Node& node) {
  return node.is("LSTM") ? 4 : node.is("GRU") ? 3 : 1;
}

std::vector<bool> RecurrentCell::backwards_of(const Node& node) {
  const std::string direction = node.get_string("direction", "forward");
  if (direction == "bidirectional") return {false, true};
  return {direction == "reverse"};
}

std::vector<Value*> RecurrentCell::parts(NodeBuilder& b, Value* whole, int64_t axis, int64_t count) {
  if (count <= 1) return std::vector<Value*>(static_cast<size_t>(count), whole);
  Node* split =
      b.emit("Split", {whole}, {{"axis", axis, ""}, {"num_outputs", count, ""}}, static_cast<size_t>(count))->producer;
  return split->outputs;
}

RecurrentCell::RecurrentCell(NodeBuilder& b, const Node& node, const std::vector<Value*>& operands, size_t direction,
                             Expr width, Whole whole)
    : b_(b),
      node_(node),
      operands_(operands),
      direction_(direction),
      width_(std::move(width)),
      whole_(std::move(whole)),
      batch_first_(node.get_int("layout", 0) != 0) {
  weights_ = b_.turn(row(kWeights));
  recurrence_ = row(kRecurrence);
  if (Value* biases = row(kBias)) {
    const std::vector<Value*> both = parts(b_, biases, 0, 2);
    bias_ = both[0];
    state_bias_ = both[1];
  }
  if (is_gru() && node.get_int("linear_before_reset", 0) == 0) {
    const auto two_and_one = [&](Value* rows) {
      return b_.emit("Split", {rows, b_.shape_operand({width_ * 2, width_})}, {{"axis", int64_t{0}, ""}}, 2)
          ->producer->outputs;
    };
    const std::vector<Value*> rows = two_and_one(recurrence_);
    recurrence_ = rows[0];
    last_recurrence_ = b_.turn(rows[1]);
    if (state_bias_) {
      const std::vector<Value*> biases = two_and_one(state_bias_);
      state_bias_ = biases[0];
      last_bias_ = biases[1];
    }
  }
  recurrence_ = b_.turn(recurrence_);
  if (Value* peepholes = row(kPeepholes)) peepholes_ = parts(b_, peepholes, 0, 3);
}

Value* RecurrentCell::row(size_t index) {
  if (!operand(index)) return nullptr;
  const auto at = static_cast<int64_t>(direction_);
  Value* cut = b_.slice(operand(index), 0, at, at + 1);
  return b_.reshape(cut, Shape(cut->shape().begin() + 1, cut->shape().end()));
}

Value* RecurrentCell::projected(Value* inputs) {
  return with_bias(b_.emit("MatMul", {inputs, weights_}), bias_);
}

Value* RecurrentCell::state(size_t index, const Expr& n) {
  if (!operand(index)) return b_.zeros(weights_->dtype(), {n, width_});
  // [d, n, h], or [n, d, h]
  const auto at = static_cast<int64_t>(direction_);
  return b_.reshape(b_.slice(operand(index), batch_first_ ? 1 : 0, at, at + 1), {n, width_});
}

RecurrentCell::State RecurrentCell::initial(const Expr& n) {
  State states{state(kHidden, n)};
  if (is_lstm()) states.cell = state(kCell, n);
  return states;
}

const std::vector<std::string>& RecurrentCell::usual_activations(const Node& node) {
  static const std::vector<std::string> of_lstm = {"Sigmoid", "Tanh", "Tanh"}, of_gru = {"Sigmoid", "Tanh"},
                                        of_rnn = {"Tanh"};
  return node.is("LSTM") ? of_lstm : node.is("GRU") ? of_gru : of_rnn;
}

Value* RecurrentCell::activated(NodeBuilder& b, const Node& node, size_t direction, size_t which, Value* x,
                                bool clips) {
  const std::vector<std::string>& usual = usual_activations(node);
  const auto* named = node.get<std::vector<std::string>>("activations");
  const std::string type = named && !named->empty() ? named->at(direction * usual.size() + which) : usual[which];
  if (const double clip = node.get_float("clip", 0); clips && clip > 0)
    x = b.emit("Clip", {x, b.number(x, -clip), b.number(x, clip)});
  return b.unary(type, x);
}

RecurrentCell::State RecurrentCell::lstm_state(NodeBuilder& b, const Node& node, size_t direction,
                                               const std::vector<Value*>& sums, const std::vector<Value*>& peepholes,
                                               const State& before) {
  const auto gate = [&](size_t at, size_t activation, Value* cell) {
    Value* sum = peepholes.empty() || at == 3 ? sums[at] : b.add(sums[at], b.mul(peepholes[at], cell));
    return activated(b, node, direction, activation, sum);
  };
  Value* in = gate(0, 0, before.cell);
  Value* forget = node.get_int("input_forget", 0) != 0 ? b.sub(1, in) : gate(2, 0, before.cell);
  Value* cell = b.add(b.mul(forget, before.cell), b.mul(in, gate(3, 1, before.cell)));
  return {b.mul(gate(1, 0, cell), activated(b, node, direction, 2, cell, false)), cell};
}

RecurrentCell::State RecurrentCell::advanced(Value* projected, const State& before) {
  Value* recurred = with_bias(b_.emit("MatMul", {whole_(before.hidden, "hidden"), recurrence_}), state_bias_);
  const auto active = [&](size_t which, Value* sum) { return activated(b_, node_, direction_, which, sum); };
  if (is_lstm()) {
    const std::vector<Value*> sums = parts(b_, b_.add(projected, recurred), 1, gates_of(node_));
    return lstm_state(b_, node_, direction_, sums, peepholes_, before);
  }
  if (!is_gru()) return {active(0, b_.add(projected, recurred))};
  const std::vector<Value*> x = parts(b_, projected, 1, gates_of(node_));
  const std::vector<Value*> r = parts(b_, recurred, 1, last_recurrence_ ? 2 : 3);
  Value* update = active(0, b_.add(x[0], r[0]));
  Value* reset = active(0, b_.add(x[1], r[1]));
  Value* last =
      last_recurrence_
          ? with_bias(b_.emit("MatMul", {whole_(b_.mul(reset, before.hidden), "reset"), last_recurrence_}), last_bias_)
          : b_.mul(reset, r[2]);
  Value* inner = active(1, b_.add(x[2], last));
  return {b_.add(b_.mul(b_.sub(1, update), inner), b_.mul(update, before.hidden))};
}

RecurrentCell::Step RecurrentCell::kept(NodeBuilder& b, const State& after, const State& before, Value* runs) {
  if (!runs) return {after, after.hidden};
  State state{b.where(runs, after.hidden, before.hidden)};
  if (after.cell) state.cell = b.where(runs, after.cell, before.cell);
  return {state, b.where(runs, after.hidden, 0.0)};
}

}  // namespace tessera::ops
