#include <algorithm>

#include "tessera/ops/gradients/gradients.h"
#include "tessera/ops/gradients/through.h"
#include "tessera/ops/library/recurrent_cell.h"

/// Gradients of RNN, GRU and LSTM: their steps are spelt out as nodes of ordinary operators, and taken back one by one.
namespace tessera::ops {
namespace {

class Unrolled {
 public:
  explicit Unrolled(GradientBuilder& b)
      : b_(b),
        type_(bits_of(b.x()->dtype()) == 16 ? DType::float32 : b.x()->dtype()),
        batch_first_(b.node.get_int("layout", 0) != 0),
        backwards_(RecurrentCell::backwards_of(b.node)) {
    for (size_t i = 0; i < b.node.inputs.size(); ++i) {
      Value* given = b.x(i);
      operands_.push_back(given && i != RecurrentCell::kLengths ? b.cast(given, type_) : given);
    }
    const auto times = b.x()->shape()[batch_first_ ? 1 : 0].constant();
    if (!times) b.refuse("the length of its sequences is symbolic; fix it with `shapes`");
    times_ = *times;
    batch_ = b.x()->shape()[batch_first_ ? 0 : 1];
    width_ = b.x(RecurrentCell::kRecurrence)->shape()[2];
  }

  DType type() const { return type_; }
  const std::vector<Value*>& operands() const { return operands_; }

  /// Appends the steps of all directions.
  void append() {
    std::vector<Value*> inputs = parts(batch_first_ ? b_.transpose(operands_[0], {1, 0, 2}) : operands_[0], 0, times_);
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
  std::vector<Value*> parts(Value* whole, int64_t axis, int64_t count) {
    return RecurrentCell::parts(b_, whole, axis, count);
  }

  // A direction's part of a state [d, n, h], or [n, d, h].
  Value* of_direction(Value* states, size_t d) {
    const auto at = static_cast<int64_t>(d);
    return b_.reshape(b_.slice(states, batch_first_ ? 1 : 0, at, at + 1), {batch_, width_});
  }

  void append_direction(size_t d, const std::vector<Value*>& inputs) {
    RecurrentCell cell(b_, b_.node, operands_, d, width_, [](Value* state, const char*) { return state; });
    RecurrentCell::State state = cell.initial(batch_);
    std::vector<Value*> results(inputs.size());
    for (size_t step = 0; step < inputs.size(); ++step) {
      const size_t t = backwards_[d] ? inputs.size() - 1 - step : step;
      const RecurrentCell::Step made =
          RecurrentCell::kept(b_, cell.advanced(cell.projected(inputs[t]), state), state, is_within(t));
      results[t] = made.result;
      state = made.state;
    }
    results_.push_back(results);
    last_hidden_.push_back(state.hidden);
    if (state.cell) last_cell_.push_back(state.cell);
  }

  // [n, 1]: which sequences reach time t; null: all do.
  Value* is_within(size_t t) {
    constexpr size_t lengths_at = RecurrentCell::kLengths;
    if (operands_.size() <= lengths_at || !operands_[lengths_at]) return nullptr;
    Value* lengths = b_.reshape(b_.cast(operands_[lengths_at], DType::int64), {batch_, 1});
    return b_.greater(lengths, static_cast<double>(t));
  }

  GradientBuilder& b_;
  DType type_;
  bool batch_first_;
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
