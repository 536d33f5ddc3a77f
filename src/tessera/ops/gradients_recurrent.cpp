#include <algorithm>

#include "tessera/ops/gradients.h"
#include "tessera/ops/gradients_through.h"

/// Gradients of RNN, GRU and LSTM: their steps are spelt out as nodes of ordinary operators, and taken back one by one.
namespace tessera::ops {
namespace {

class Unrolled {
 public:
  enum At : size_t { kSequence, kWeights, kRecurrence, kBias, kLengths, kHidden, kCell, kPeepholes };

  explicit Unrolled(GradientBuilder& b)
      : b_(b),
        type_(bits_of(b.x()->dtype()) == 16 ? DType::float32 : b.x()->dtype()),
        batch_first_(b.node.get_int("layout", 0) != 0),
        clip_(b.node.get_float("clip", 0)) {
    for (size_t i = 0; i < b.node.inputs.size(); ++i) {
      Value* given = b.x(i);
      operands_.push_back(given && i != kLengths ? b.cast(given, type_) : given);
    }
    const auto times = b.x()->shape()[batch_first_ ? 1 : 0].constant();
    if (!times) b.refuse("the length of its sequences is symbolic; fix it with --shapes");
    times_ = *times;
    batch_ = b.x()->shape()[batch_first_ ? 0 : 1];
    width_ = b.x(kRecurrence)->shape()[2];
    const std::string direction = b.node.get_string("direction", "forward");
    backwards_ = {direction == "reverse"};
    if (direction == "bidirectional") backwards_.push_back(true);
  }

  DType type() const { return type_; }
  const std::vector<Value*>& operands() const { return operands_; }

  /// Appends the steps of all directions.
  void append() {
    std::vector<Value*> inputs =
        parts(batch_first_ ? b_.transpose(operands_[kSequence], {1, 0, 2}) : operands_[kSequence], 0, times_);
    for (Value*& input : inputs) input = b_.reshape(input, {batch_, input->shape().back()});
    for (size_t d = 0; d < backwards_.size(); ++d) append_direction(d, inputs);
  }

  /// The gradients of the node's results as gradients of what the steps have made.
  std::vector<KnownGradient> known() {
    std::vector<KnownGradient> all;
    const auto of_states = [&](size_t result, const std::vector<Value*>& last) {
      if (!b_.g(result)) return;
      for (size_t d = 0; d < last.size(); ++d) all.push_back({last[d], of_direction(b_.cast(b_.g(result), type_), d)});
    };
    if (b_.g(0)) {
      // [t, d, n, h]
      Value* g = b_.cast(b_.g(0), type_);
      if (batch_first_) g = b_.transpose(g, {1, 2, 0, 3});
      const std::vector<Value*> at = parts(g, 0, times_);
      for (size_t t = 0; t < at.size(); ++t) {
        const std::vector<Value*> of = parts(at[t], 1, static_cast<int64_t>(backwards_.size()));
        for (size_t d = 0; d < of.size(); ++d) all.push_back({results_[d][t], b_.reshape(of[d], {batch_, width_})});
      }
    }
    of_states(1, last_hidden_);
    of_states(2, last_cell_);
    return all;
  }

 private:
  bool is_lstm() const { return b_.node.is("LSTM"); }
  bool is_gru() const { return b_.node.is("GRU"); }
  int64_t gates() const { return is_lstm() ? 4 : is_gru() ? 3 : 1; }

  // Equal parts along a dimension, all by one node.
  std::vector<Value*> parts(Value* whole, int64_t axis, int64_t count) {
    if (count <= 1) return std::vector<Value*>(static_cast<size_t>(count), whole);
    Node* split =
        b_.emit("Split", {whole}, {{"axis", axis, ""}, {"num_outputs", count, ""}}, static_cast<size_t>(count))
            ->producer;
    return split->outputs;
  }

  // Of a state [d, n, h], or [n, d, h].
  Value* of_direction(Value* states, size_t d) {
    const auto at = static_cast<int64_t>(d);
    return b_.reshape(b_.slice(states, batch_first_ ? 1 : 0, at, at + 1), {batch_, width_});
  }

  // Row `d` of an operand, less its first dimension; null without the operand.
  Value* row(size_t operand, size_t d) {
    if (operand >= operands_.size() || !operands_[operand]) return nullptr;
    const auto at = static_cast<int64_t>(d);
    Value* cut = b_.slice(operands_[operand], 0, at, at + 1);
    return b_.reshape(cut, Shape(cut->shape().begin() + 1, cut->shape().end()));
  }

  Value* state(size_t operand, size_t d) {
    if (operand < operands_.size() && operands_[operand]) return of_direction(operands_[operand], d);
    return b_.zeros(type_, {batch_, width_});
  }

  Value* activated(size_t d, size_t which, Value* x, bool clips = true) {
    static const std::vector<std::string> of_lstm = {"Sigmoid", "Tanh", "Tanh"}, of_gru = {"Sigmoid", "Tanh"},
                                          of_rnn = {"Tanh"};
    const std::vector<std::string>& usual = is_lstm() ? of_lstm : is_gru() ? of_gru : of_rnn;
    const auto* named = b_.node.get<std::vector<std::string>>("activations");
    const std::string type = named && !named->empty() ? named->at(d * usual.size() + which) : usual[which];
    if (clips && clip_ > 0) x = b_.emit("Clip", {x, b_.number(x, -clip_), b_.number(x, clip_)});
    return b_.unary(type, x);
  }

  struct Weights {
    Value *turned, *last_turned;  ///< of the state: of all gates that read it, and of a GRU's last one
    Value *of_state, *of_last;    ///< their biases; null: none
    std::vector<Value*> peepholes;
  };

  void append_direction(size_t d, const std::vector<Value*>& inputs) {
    Value *weights = b_.turn(row(kWeights, d)), *recurrence = row(kRecurrence, d), *bias = row(kBias, d);
    std::vector<Value*> biases(2, nullptr);
    if (bias) biases = parts(bias, 0, 2);
    Weights own{recurrence, nullptr, biases[1], nullptr, {}};
    const bool resets_before = is_gru() && b_.node.get_int("linear_before_reset", 0) == 0;
    if (resets_before) {
      own.turned = b_.slice(recurrence, 0, 0, width_ * 2);
      own.last_turned = b_.turn(b_.slice(recurrence, 0, width_ * 2, width_ * 3));
      if (own.of_state) {
        own.of_last = b_.slice(own.of_state, 0, width_ * 2, width_ * 3);
        own.of_state = b_.slice(own.of_state, 0, 0, width_ * 2);
      }
    }
    own.turned = b_.turn(own.turned);
    if (Value* peepholes = row(kPeepholes, d)) own.peepholes = parts(peepholes, 0, 3);
    Value *hidden = state(kHidden, d), *cell = is_lstm() ? state(kCell, d) : nullptr;
    std::vector<Value*> results(inputs.size());
    for (size_t step = 0; step < inputs.size(); ++step) {
      const size_t t = backwards_[d] ? inputs.size() - 1 - step : step;
      Value *next_hidden = hidden, *next_cell = cell;
      advance(d, own, with_bias(b_.emit("MatMul", {inputs[t], weights}), biases[0]), next_hidden, next_cell);
      results[t] = next_hidden;
      if (Value* runs = is_within(t)) {
        // A sequence that has ended, or has not begun, keeps its state and gives zeros.
        results[t] = b_.where(runs, next_hidden, 0.0);
        next_hidden = b_.where(runs, next_hidden, hidden);
        if (cell) next_cell = b_.where(runs, next_cell, cell);
      }
      hidden = next_hidden;
      cell = next_cell;
    }
    results_.push_back(results);
    last_hidden_.push_back(hidden);
    if (cell) last_cell_.push_back(cell);
  }

  // [n, 1]: which sequences reach time t; null: all do.
  Value* is_within(size_t t) {
    if (operands_.size() <= kLengths || !operands_[kLengths]) return nullptr;
    Value* lengths = b_.reshape(b_.cast(operands_[kLengths], DType::int64), {batch_, 1});
    return b_.greater(lengths, static_cast<double>(t));
  }

  Value* with_bias(Value* x, Value* bias) { return bias ? b_.add(x, bias) : x; }

  // One step from the input's product [n, gates·h].
  void advance(size_t d, const Weights& w, Value* input, Value*& hidden, Value*& cell) {
    Value* recurred = with_bias(b_.emit("MatMul", {hidden, w.turned}), w.of_state);
    const std::vector<Value*> x = parts(input, 1, gates());
    if (is_gru()) {
      const std::vector<Value*> r = parts(recurred, 1, w.last_turned ? 2 : 3);
      Value* update = activated(d, 0, b_.add(x[0], r[0]));
      Value* reset = activated(d, 0, b_.add(x[1], r[1]));
      Value* last = w.last_turned ? with_bias(b_.emit("MatMul", {b_.mul(reset, hidden), w.last_turned}), w.of_last)
                                  : b_.mul(reset, r[2]);
      Value* inner = activated(d, 1, b_.add(x[2], last));
      hidden = b_.add(b_.mul(b_.sub(1, update), inner), b_.mul(update, hidden));
      return;
    }
    if (!is_lstm()) {
      hidden = activated(d, 0, b_.add(input, recurred));
      return;
    }
    const std::vector<Value*> r = parts(recurred, 1, gates());
    const auto gate = [&](size_t at) {
      Value* sum = b_.add(x[at], r[at]);
      return w.peepholes.empty() || at == 3 ? sum : b_.add(sum, b_.mul(w.peepholes[at], cell));
    };
    Value* in = activated(d, 0, gate(0));
    Value* forget = b_.node.get_int("input_forget", 0) != 0 ? b_.sub(1, in) : activated(d, 0, gate(2));
    cell = b_.add(b_.mul(forget, cell), b_.mul(in, activated(d, 1, gate(3))));
    hidden = b_.mul(activated(d, 0, gate(1)), activated(d, 2, cell, false));
  }

  GradientBuilder& b_;
  DType type_;
  bool batch_first_;
  double clip_;
  int64_t times_ = 0;
  Expr batch_, width_;
  std::vector<bool> backwards_;
  std::vector<Value*> operands_, last_hidden_, last_cell_;  // the last ones by direction
  std::vector<std::vector<Value*>> results_;                // by direction and time
};

}  // namespace

void recurrent_gradient(GradientBuilder& b) {
  Unrolled unrolled(b);
  const size_t begin = b.graph.nodes().size();
  unrolled.append();
  std::vector<Node*> forward;
  for (size_t i = begin; i < b.graph.nodes().size(); ++i) forward.push_back(b.graph.nodes()[i].get());
  std::vector<Value*> of;
  std::vector<size_t> wanted;
  for (size_t i = 0; i < b.node.inputs.size(); ++i) {
    if (!b.wants(i)) continue;
    wanted.push_back(i);
    of.push_back(unrolled.operands()[i]);
  }
  const std::vector<Value*> found = gradients_through(b.graph, forward, unrolled.known(), of);
  for (size_t i = 0; i < wanted.size(); ++i)
    if (found[i]) b.give(wanted[i], b.cast(found[i], b.x(wanted[i])->dtype()));
}

}  // namespace tessera::ops
