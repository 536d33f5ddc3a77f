#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/train/index_ranges.h"
#include "tessera/train/schedule.h"

namespace tessera::train {

/// Whether Dropouts drop elements: as their operand training_mode says, all, or none.
enum class Dropout { as_stated, on, off };

/// Whether BatchNormalizations use the statistics of the batch, and step the running ones: as their attribute
/// training_mode says, all, or none.
enum class BatchNorm { as_stated, train, frozen };

/// The mode of a word: "model", "on", "off"; "model", "train", "frozen". Throws a user error for another.
Dropout parse_dropout(std::string_view text);
BatchNorm parse_batch_norm(std::string_view text);

/// The options of a training step, as words of the command line.
struct StepOptions {
  tessera::Loss loss = "cross-entropy";  ///< see train::Loss
  std::string output;                    ///< that a term takes that names no tensor; empty: the model's first
  std::string labels = "labels";         ///< the input that the output is compared with; made if the model has none
  /// Extents of labels that are given for the whole batch, by their names, where the model has no such input: they say
  /// where logits hold their classes (see Loss). Sizes of symbols must be known then.
  std::map<std::string, Dims, std::less<>> label_dims;
  tessera::Optimizer optimizer = "adamw";
  Schedule rate{LearningRate{}};
  double clip = 0;        ///< the largest norm of all gradients together; 0: any
  int micro_batches = 1;  ///< that a batch is cut into, one after the other
  /// Patterns of parameters that do not train.
  std::vector<std::string> freeze;
  /// Patterns of what trains, too, and would count as constants: scalars, buffers, what the exporter computed.
  std::vector<std::string> train;
  /// "COPY=SOURCE" or "COPY=SOURCE^T": initializers that are one parameter; "none": the exporter's copies train apart.
  std::vector<std::string> tie;
  /// Patterns of parameters without weight decay; "vectors" means all with fewer than two dimensions.
  std::vector<std::string> no_decay;
  /// Pattern and factor: parameters whose learning rate is another; the first that matches counts.
  std::vector<std::pair<std::string, double>> rate_factors;
  double average = 0;  ///< of an exponential moving average of the parameters, "PARAMETER.average"; 0: none
  /// What the loss is multiplied by before the backward pass. Empty: nothing. "dynamic" or
  /// "dynamic:init=65536,growth=2,backoff=0.5,interval=2000": halved when a gradient is not finite; doubled after an
  /// interval without. A number stays. Empty means "dynamic" if the step computes in float16.
  std::string loss_scale;
  Dropout dropout = Dropout::as_stated;
  BatchNorm batch_norm = BatchNorm::as_stated;
  uint64_t seed = 0;  ///< of random numbers (docs/random.md)
  /// Pattern and rule: parameters that begin with random numbers (initialize.h); the first pattern that matches counts.
  std::vector<std::pair<std::string, std::string>> init;
  /// What the forward and backward pass compute in; parameters, their sums of gradients, losses and norms are float32.
  DType compute = DType::float32;
  /// Sizes of the model's symbols, of the whole batch. Micro-batches need that of the batch.
  std::map<std::string, int64_t, std::less<>> sizes;
};

/// The names of a step's outputs, and of the states that are its own.
inline constexpr std::string_view kLoss = "loss", kGradientNorm = "grad_norm", kLearningRate = "learning_rate";
inline constexpr std::string_view kLossScale = "loss_scale";
inline constexpr std::string_view kStep = "train.step", kScale = "train.loss_scale", kGood = "train.good_steps";

/// The role of a float initializer of the model in training.
struct Selected {
  std::string name;
  /// Its other names in the model that was exported; of what the exporter computed, the parameters that it used.
  std::vector<std::string> sources;
  Dims dims;
  bool trains = false;
  std::string why;          ///< it does not train
  std::string tied_to;      ///< the parameter that it is a copy of, and so no state of the step; empty: none
  bool transposed = false;  ///< so is the copy
};

/// The names that a pattern matches.
struct Reached {
  std::string setting;  ///< the member of StepOptions that it stands in: "freeze"
  std::string pattern;
  std::vector<std::string> names;
};

struct Step {
  OnnxModel model;                       ///< parameters and what the optimizer keeps are states with next values
  std::vector<std::string> parameters;   ///< that train, in the model's order
  std::vector<std::string> kept;         ///< by the optimizer
  std::vector<std::string> statistics;   ///< running ones of BatchNormalizations, which step, too
  std::map<std::string, Tensor> frozen;  ///< the model's other parameters
  std::vector<Selected> table;
  std::vector<Reached> reached;
  std::vector<std::string> notes;  ///< possible mistakes of the user
  std::vector<IndexRange> ranges;  ///< of labels that are classes, and of what looks up rows of parameters
};

/// One term of a loss, and what a step and an evaluation call it.
struct StepTerm {
  std::string name;                   ///< "z-loss"
  std::string label;                  ///< "z-loss.logits"
  std::string tensor;                 ///< that it takes; empty: StepOptions::output
  std::optional<std::string> labels;  ///< that it compares this with; empty: StepOptions::labels; nullopt: nothing
  double weight = 1;
  std::optional<int64_t> axis;     ///< of the classes, where the term says it; may count from the end
  std::optional<int64_t> ignored;  ///< the label that does not count, where labels are classes
  std::string loss, counted;       ///< outputs: its value before it is weighted, and what its sum was divided by
};

/// The terms of a loss. A term that is alone has the loss itself as its output, weight included.
std::vector<StepTerm> terms_of(const tessera::Loss& loss);

/// Makes a training step of a model: forward, loss, backward, clipping and update in one graph. Its outputs are the
/// loss and the norm of the gradients before clipping (float32), the learning rate and, if it is dynamic, the scale of
/// the loss; of several terms, each one's value as "loss.LABEL". Gradients are named "grad.PARAMETER". If the loss or
/// the norm is not finite, no state steps but the scale's. Throws user errors that name the place: no such output, no
/// such loss of it, nothing that trains, an operator on the way to a parameter that has no gradient, an input or
/// parameter that has a name of the step's own.
Step make_step(const OnnxModel& model, const StepOptions& options);

/// The number of labels that count in a batch, as an output of an evaluation; of several terms, "counted.LABEL".
inline constexpr std::string_view kCounted = "counted";

/// Makes an evaluation: forward and loss. Its outputs are the loss (float32) and what its sum was divided by; the
/// parameters that `make_step` would train are states that another program changes.
Step make_evaluation(const OnnxModel& model, const StepOptions& options);

}  // namespace tessera::train
