#pragma once

#include <functional>
#include <vector>

#include "tessera/ops/library/node_builder.h"

namespace tessera::ops {

/// A step of an RNN, GRU or LSTM as nodes of ordinary operators, for all its hidden units or for some of them.
class RecurrentCell {
 public:
  enum At : size_t { kSequence, kWeights, kRecurrence, kBias, kLengths, kHidden, kCell, kPeepholes };

  /// In one direction: `operands` in the node's order, all of one floating-point type but for the lengths, with the
  /// rows of `width` of the hidden units in every gate; null for absent ones. `whole` gives a state [n, width] of these
  /// units as one of all units; `step_name` tells apart what it is given in one step.
  using Whole = std::function<Value*(Value* state, const char* step_name)>;
  RecurrentCell(NodeBuilder& b, const Node& node, const std::vector<Value*>& operands, size_t direction, Expr width,
                Whole whole);

  /// [n, width]. `cell` is null but of an LSTM.
  struct State {
    Value *hidden = nullptr, *cell = nullptr;
  };

  /// The product of inputs [..., i] with the weights of all gates, [..., gates·width], and its bias.
  Value* projected(Value* inputs);
  /// The state after a step, from the projected inputs [n, gates·width].
  State advanced(Value* projected, const State& before);
  /// The states before the first step, for n sequences.
  State initial(const Expr& n);
  /// What a sequence gives at a step, and keeps. One that has ended, or has not begun, keeps its state and gives zeros.
  /// `runs` [n, 1] says which sequences reach this time; null: all.
  struct Step {
    State state;
    Value* result = nullptr;
  };
  static Step kept(NodeBuilder& b, const State& after, const State& before, Value* runs);

  /// An LSTM's state after a step. `node` says activations, clip and input_forget; `sums` [n, width] of the gates are
  /// those of input, output, forgetting and the cell, `peepholes` [width] of the first three; empty: none.
  static State lstm_state(NodeBuilder& b, const Node& node, size_t direction, const std::vector<Value*>& sums,
                          const std::vector<Value*>& peepholes, const State& before);
  static int64_t gates_of(const Node& node);
  /// The activations of each direction where the node names none.
  static const std::vector<std::string>& usual_activations(const Node& node);
  /// Tells for each direction whether it begins at the end.
  static std::vector<bool> backwards_of(const Node& node);
  /// Equal parts along a dimension, all by one node.
  static std::vector<Value*> parts(NodeBuilder& b, Value* whole, int64_t axis, int64_t count);

 private:
  bool is_lstm() const { return node_.is("LSTM"); }
  bool is_gru() const { return node_.is("GRU"); }
  Value* operand(size_t index) const { return index < operands_.size() ? operands_[index] : nullptr; }
  /// This direction's row of an operand, less its first dimension; null without the operand.
  Value* row(size_t index);
  Value* state(size_t index, const Expr& n);
  static Value* activated(NodeBuilder& b, const Node& node, size_t direction, size_t which, Value* x,
                          bool clips = true);
  Value* with_bias(Value* x, Value* bias) { return bias ? b_.add(x, bias) : x; }

  NodeBuilder& b_;
  const Node& node_;
  const std::vector<Value*>& operands_;
  size_t direction_;
  Expr width_;
  Whole whole_;
  bool batch_first_ = false;
  Value *weights_ = nullptr, *bias_ = nullptr;                ///< of the input
  Value *recurrence_ = nullptr, *last_recurrence_ = nullptr;  ///< of the state: of all gates that read it as it is, and
                                                              ///< of a GRU's last one, if that reads it after a reset
  Value *state_bias_ = nullptr, *last_bias_ = nullptr;        ///< their biases; null: none
  std::vector<Value*> peepholes_;
};

}  // namespace tessera::ops
