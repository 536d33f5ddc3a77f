#include "tessera/ops/recurrent_cell.h"

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
      clip_(node.get_float("clip", 0)),
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

Value* RecurrentCell::activated(size_t which, Value* x, bool clips) {
  const std::vector<std::string>& usual = usual_activations(node_);
  const auto* named = node_.get<std::vector<std::string>>("activations");
  const std::string type = named && !named->empty() ? named->at(direction_ * usual.size() + which) : usual[which];
  if (clips && clip_ > 0) x = b_.emit("Clip", {x, b_.number(x, -clip_), b_.number(x, clip_)});
  return b_.unary(type, x);
}

RecurrentCell::State RecurrentCell::advanced(Value* projected, const State& before) {
  Value* recurred = with_bias(b_.emit("MatMul", {whole_(before.hidden, "hidden"), recurrence_}), state_bias_);
  const std::vector<Value*> x = parts(b_, projected, 1, gates_of(node_));
  if (is_gru()) {
    const std::vector<Value*> r = parts(b_, recurred, 1, last_recurrence_ ? 2 : 3);
    Value* update = activated(0, b_.add(x[0], r[0]));
    Value* reset = activated(0, b_.add(x[1], r[1]));
    Value* last = last_recurrence_
                      ? with_bias(b_.emit("MatMul", {whole_(b_.mul(reset, before.hidden), "reset"), last_recurrence_}),
                                  last_bias_)
                      : b_.mul(reset, r[2]);
    Value* inner = activated(1, b_.add(x[2], last));
    return {b_.add(b_.mul(b_.sub(1, update), inner), b_.mul(update, before.hidden))};
  }
  if (!is_lstm()) return {activated(0, b_.add(projected, recurred))};
  const std::vector<Value*> r = parts(b_, recurred, 1, gates_of(node_));
  const auto gate = [&](size_t at, Value* cell) {
    Value* sum = b_.add(x[at], r[at]);
    return peepholes_.empty() || at == 3 ? sum : b_.add(sum, b_.mul(peepholes_[at], cell));
  };
  Value* in = activated(0, gate(0, before.cell));
  Value* forget = node_.get_int("input_forget", 0) != 0 ? b_.sub(1, in) : activated(0, gate(2, before.cell));
  Value* cell = b_.add(b_.mul(forget, before.cell), b_.mul(in, activated(1, gate(3, before.cell))));
  return {b_.mul(activated(0, gate(1, cell)), activated(2, cell, false)), cell};
}

RecurrentCell::Step RecurrentCell::kept(const State& after, const State& before, Value* runs) {
  if (!runs) return {after, after.hidden};
  State state{b_.where(runs, after.hidden, before.hidden)};
  if (after.cell) state.cell = b_.where(runs, after.cell, before.cell);
  return {state, b_.where(runs, after.hidden, 0.0)};
}

}  // namespace tessera::ops
