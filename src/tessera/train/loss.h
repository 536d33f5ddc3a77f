#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/ops/library/node_builder.h"
#include "tessera/train/loss_rules.h"

namespace tessera::train {

/// One term of the loss. It is computed in float32 at least, as a sum over elements and a separate divisor: the sum of
/// several micro-batches, divided once, is the term of all.
///
/// - "cross-entropy": of logits and int64 labels, which lack just the dimension of the classes; divided by the number
/// of
///   labels that are not `ignore_index` (-100), at least 1. `label_smoothing` e takes (1-e) of the label's and e of the
///   mean over all classes, as torch.nn.CrossEntropyLoss does. `axis` says where the classes are, in place of the
///   labels.
/// - "mse": the mean of squared differences to a target of the output's shape.
/// - "bce", "bce-with-logits": binary cross-entropy of probabilities, or of logits, with targets of that shape;
///   logarithms of probabilities are at least -100, as PyTorch's.
/// - "z-loss": (log Σ eˣ)² of the logits of each row whose label counts, divided by the number of these; of all rows if
///   `labels` is `none` (PaLM, arXiv 2204.02311, section 5; ST-MoE, arXiv 2202.08906, equation 5). `axis` as above.
/// - "output": the model's own scalar; "mean": the mean of a tensor's elements.
///
/// `tensor` is what it takes, `labels` the input that this is compared with.
class Loss {
 public:
  /// The rule is one that value_of() gives (loss_rules.h).
  explicit Loss(const LossRule& rule);

  const std::string& name() const { return name_; }  ///< "z-loss"
  double weight() const { return weight_; }
  const std::string& tensor() const { return tensor_; }  ///< empty: the step's output
  const std::string& labels() const { return labels_; }  ///< empty: the step's labels
  /// "z-loss.logits": what it is called beside other terms.
  std::string label() const {
    return name_ + (tensor_.empty() ? "" : "." + tensor_) + (names_labels_ ? "." + labels_ : "");
  }
  /// Adds its labels, if it names its own, to what it is called: "mse.y.target".
  void name_labels() { names_labels_ = !labels_.empty(); }

  /// Whether it compares the output with labels.
  bool takes_labels() const;
  /// Whether it takes logits, and labels that are classes.
  bool takes_classes() const { return kind_ == Kind::cross_entropy || kind_ == Kind::z; }
  const std::optional<int64_t>& axis() const { return axis_; }  ///< as given; may count from the end
  /// Finds the dimension of the logits that holds the classes: the one that labels of that shape lack. Without labels,
  /// or before their shape is known (null), the last one. Does nothing for other losses. Throws a user error if none
  /// fits, or several do; then `axis` must say which.
  void find_classes(const Value& output, const Shape* labels);
  size_t class_axis() const { return class_axis_; }  ///< after find_classes
  int64_t ignored() const { return ignored_; }       ///< the label that does not count
  /// The type of what it compares an output of that type with. Throws a user error if there is no such loss of it.
  TensorType labels_type(const Value& output) const;
  /// The sum over a (micro-)batch, a scalar.
  Value* sum(ops::NodeBuilder& build, Value* output, Value* labels) const;
  /// What the sums of all micro-batches are divided by: a scalar. `labels` are those of all; `parts` their number.
  Value* divisor(ops::NodeBuilder& build, const Value& output, Value* labels, int parts) const;

 private:
  enum class Kind { cross_entropy, squared_error, binary, binary_with_logits, z, output, mean };

  Value* cross_entropy(ops::NodeBuilder& build, Value* x, Value* labels) const;
  Value* squared_log_sums(ops::NodeBuilder& build, Value* x, Value* labels) const;
  Shape rows_of(const Value& logits) const;
  Value* is_ignored(ops::NodeBuilder& build, Value* wanted) const;

  Kind kind_ = Kind::cross_entropy;
  std::string name_, tensor_, labels_;
  double weight_ = 1, smoothing_ = 0;
  int64_t ignored_ = -100;
  std::optional<int64_t> axis_;  // as given; the last dimension is -1, too
  size_t class_axis_ = 0;
  bool names_labels_ = false;
};

/// The terms of a loss. Throws a user error as value_of() does (loss_rules.h), and for two terms with one label.
std::vector<Loss> losses_of(const tessera::Loss& loss);

}  // namespace tessera::train
