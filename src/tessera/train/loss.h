#pragma once

#include <string>

#include "tessera/ops/node_builder.h"

namespace tessera::train {

/// What is minimized. All losses are computed in float32 at least, as a sum over elements and a divisor: the sum of
/// several micro-batches, divided once, is the loss of all.
///
/// - "cross-entropy": of logits [..., classes] (or [batch, classes, ...]) and int64 labels [...]; divided by the number
///   of labels that are not `ignore_index` (-100), at least 1. `label_smoothing` e takes (1-e) of the label's and e of
///   the mean over all classes, as torch.nn.CrossEntropyLoss does.
/// - "mse": the mean of squared differences to a target of the output's shape.
/// - "bce", "bce-with-logits": binary cross-entropy of probabilities, or of logits, with targets of that shape;
/// logarithms
///   of probabilities are at least -100, as PyTorch's.
/// - "output": the model's own scalar.
class Loss {
 public:
  /// Throws a user error for an unknown loss or key.
  explicit Loss(const std::string& spec);

  /// Whether it compares the output with something given.
  bool takes_labels() const { return kind_ != Kind::output; }
  /// The type of what it compares an output of that type with. Throws a user error if there is no such loss of it.
  TensorType labels_type(const Value& output) const;
  /// The sum over a (micro-)batch, a scalar.
  Value* sum(ops::NodeBuilder& build, Value* output, Value* labels) const;
  /// What the sums of all micro-batches are divided by: a scalar. `labels` are those of all; `parts` their number.
  Value* divisor(ops::NodeBuilder& build, const Value& output, Value* labels, int parts) const;

 private:
  enum class Kind { cross_entropy, squared_error, binary, binary_with_logits, output };

  Kind kind_ = Kind::cross_entropy;
  double smoothing_ = 0;
  int64_t ignored_ = -100;
};

}  // namespace tessera::train
