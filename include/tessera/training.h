#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/rules.h"
#include "tessera/tessera.h"

/// Training steps: a model, its loss, their gradients and an optimizer as one model whose states step.
namespace tessera {
inline namespace v1 {

/// What a training step is made of, in the words of `tessera train` (docs/training.md).
struct Training {
  /// A sum of terms "WEIGHT*NAME:TENSOR,labels=INPUT,key=value", of which only the name must be there:
  /// "cross-entropy:label_smoothing=0.1+1e-4*z-loss+0.01*output:aux_loss". The names are "cross-entropy", "mse", "bce",
  /// "bce-with-logits", "z-loss", "output" (the model's own scalar) and "mean" (of a tensor's elements). Or one of
  /// these as a value (rules.h).
  Loss loss = "cross-entropy";
  std::string output;             ///< what a term takes that names no tensor; empty: the model's first output
  std::string labels = "labels";  ///< the input that it is compared with; a new one if the model has none
  /// Extents of the labels of a batch, by name, where the model has no such input. The classes of a cross-entropy are
  /// the dimension of its logits that labels lack; without these and without a key `axis`, they are the last dimension.
  std::map<std::string, Dims> label_dims;
  /// "sgd", "adam", "adamw", "lamb", "lion", "adafactor" or "muon";
  /// "adamw:beta1=0.9,beta2=0.95,eps=1e-8,weight_decay=0.1". Or one of these as a value.
  Optimizer optimizer = "adamw";
  /// "3e-4", or "warmup=10,peak=3e-4,cosine=100,min=3e-5". Or a LearningRate.
  LearningRateRule learning_rate = "1e-3";
  std::vector<float> learning_rates;  ///< one for each step, in place of `learning_rate`; the last stays
  double clip = 0;                    ///< largest norm of all gradients together; 0: any
  int micro_batches = 1;              ///< a batch is cut into so many, one after the other
  std::vector<std::string> freeze;    ///< patterns of parameters that do not train
  /// Patterns of tensors that train although they look like constants: scalars, buffers, what an exporter computed.
  std::vector<std::string> train;
  /// "COPY=SOURCE" or "COPY=SOURCE^T": initializers that are one parameter; "none": copies that the exporter made train
  /// separately.
  std::vector<std::string> tie;
  std::vector<std::string>
      no_decay;  ///< patterns of parameters without weight decay; "vectors": of fewer dimensions than 2
  std::vector<std::pair<std::string, double>> rate_factors;  ///< pattern, and a factor of the learning rate
  double average = 0;  ///< decay of an exponential moving average of the parameters; 0: none
  /// "", a number, or "dynamic:init=65536,growth=2,backoff=0.5,interval=2000"; "" is "dynamic" in float16.
  std::string loss_scale;
  DType compute = DType::float32;  ///< of forward and backward; parameters and optimizer stay float32
  uint64_t seed = 0;               ///< of random numbers (docs/random.md)
  /// Whether Dropouts drop elements: "model" (as training_mode says), "on" (all) or "off". An evaluation drops none.
  std::string dropout = "model";
  /// Whether BatchNormalizations use the statistics of the whole batch, and move the running ones: "model" (as
  /// training_mode says), "train" (all) or "frozen" (none). An evaluation uses the running ones.
  std::string batch_norm = "model";
  /// Pattern and rule: parameters that begin with numbers made by the seed instead of the model's; the first pattern
  /// that matches counts. "normal:0.02", "normal:0.02,MEAN", "uniform:-0.1,0.1", "zeros", "ones", "constant:0.5",
  /// "xavier", "kaiming".
  std::vector<std::pair<std::string, std::string>> init;
  SymbolSizes sizes;  ///< of the model's symbols, the whole batch; others stay open
};

/// One term of a loss.
struct LossTerm {
  std::string name;                     ///< "cross-entropy", "output"
  std::string label;                    ///< "cross-entropy", "output.aux_loss"
  std::string tensor;                   ///< what it takes; empty: Training::output
  std::optional<std::string> labels;    ///< what this is compared with; empty: Training::labels; nullopt: nothing
  double weight = 1;                    ///< in the sum
  std::optional<int64_t> axis;          ///< dimension of the classes, where the term says it; may count from the end
  std::optional<int64_t> ignore_index;  ///< the label that does not count, where labels are classes
  /// Outputs of the step and the evaluation: its value, "loss.LABEL", and what its sum was divided by,
  /// "counted.LABEL". A term that is alone has "loss", in which its weight is, and "counted".
  std::string loss, counted;
};

/// Throws a user error for what is not a loss.
std::vector<LossTerm> loss_terms(const Loss& loss);

/// Integers that an input of a step may hold: 0 to `count` - 1, and `ignored`. A run with others fails in the operator
/// that meets them first, or counts negative ones from the end, as ONNX's Gather does.
struct IndexRange {
  std::string input;
  int64_t count = 0;
  std::optional<int64_t> ignored;
  std::string meaning;  ///< what they count: "the classes of 'logits'", "the rows of 'embed'"
};

/// What becomes of a float initializer of the model.
struct SelectedTensor {
  std::string name;
  /// Its other names in the exported model; of a tensor that the exporter computed, the parameters that it used.
  std::vector<std::string> sources;
  Dims dims;
  bool trains = false;
  std::string why;          ///< it does not train; empty if it does
  std::string tied_to;      ///< the parameter that it is a copy of, and so no state of the step; empty: none
  bool transposed = false;  ///< the copy is
};

/// What a pattern of Training matches, by name.
struct PatternReach {
  std::string setting;  ///< the member that it stands in: "freeze"
  std::string pattern;
  std::vector<std::string> names;
};

/// The model of one step, and what its states are.
struct TrainingStep {
  /// Outputs "loss", "grad_norm", "learning_rate", if it is dynamic, "loss_scale", and, if there are several, each
  /// LossTerm's value. "train.step" counts steps; gradients are named "grad.PARAMETER". If the loss or the norm is not
  /// finite, no state steps but the scale's.
  Model model;
  std::vector<std::string> parameters;    ///< that train
  std::vector<std::string> optimizer;     ///< what the optimizer and the moving average keep: "PARAMETER.momentum"
  std::vector<std::string> statistics;    ///< running ones of BatchNormalizations, which step without a gradient
  Tensors frozen;                         ///< the model's other parameters, by name
  std::vector<std::string> notes;         ///< assumptions that the caller may not share
  std::vector<IndexRange> ranges;         ///< of labels that are classes, and of tokens that look up rows of parameters
  std::vector<SelectedTensor> selection;  ///< of the model's float initializers, except unnamed scalars
  std::vector<PatternReach> reached;

  /// Adds the values of the parameters' copies in the model, each in its own layout. `suffix` ends all names, as
  /// ".average" does.
  void add_copies(Tensors& values, const std::string& suffix = "") const;

  /// Writes the step as plain ONNX, which any engine runs: each state is an initializer NAME, and its value after the
  /// step an output "next.NAME". Tensors beyond a gigabyte together go to a file beside it. Throws a user error for a
  /// path that cannot be written.
  void write(const std::filesystem::path& path) const;
};

/// What a checkpoint says beside its tensors.
struct CheckpointFacts {
  int64_t step = 0;                          ///< steps that have been made
  std::map<std::string, int64_t> numbers;    ///< the data's cursor, the seed, …
  std::map<std::string, std::string> texts;  ///< what the data are, …
  std::string run;  ///< of one that is read: the identity of the run that saved it; each run has its own
};

/// A folder of checkpoints of a training run (docs/checkpoints.md), "step-000120" and so on. Any mesh, preset and
/// number of processes can go on from what any other has saved.
class Checkpoints {
 public:
  /// Makes the folder, and keeps other runs out of it while this lives. Throws a user error if nothing can be written
  /// there, and if another run holds it, which the error names. Keeps the last `keep` (0: all). Where ranks are
  /// processes, every process makes one, with its connection; that of rank 0 holds the folder.
  Checkpoints(std::filesystem::path folder, int64_t keep, const std::shared_ptr<Connection>& connection = nullptr);
  ~Checkpoints();  ///< waits for what is being written
  const std::filesystem::path& folder() const;
  /// Why other runs are not kept out of the folder (its file system has no locks); "": they are.
  std::string lock_problem() const;

  /// Copies the states that change (SessionOptions::checkpoints), and writes them while the session runs on; it may end
  /// before they are written. Waits for an earlier one first. Returns what went wrong with that one; "" if nothing: a
  /// full disk does not end training. In a session with a connection, every process makes this call and the next two.
  std::string save(Session& session, const CheckpointFacts& facts);
  /// To be called after each run: where ranks are processes, a checkpoint becomes valid in a call of this, or of
  /// finish(), after all have written. Returns what went wrong, if a checkpoint has ended since; else "".
  std::string poll();
  /// Waits until all is written. Returns what went wrong; "" if nothing did.
  std::string finish();
  /// The step of the last checkpoint that this has saved, as the process of rank 0 knows it; nullopt: none.
  std::optional<int64_t> saved() const;
  /// Removes what a killed run has left in the folder, whose newest good checkpoint is that of `step`: unfinished
  /// checkpoints, and old ones, so that `keep` remain. Returns what went wrong; "" if nothing did.
  std::string tidy(int64_t step);

  /// The newest good checkpoint in a folder; nullopt if there are no checkpoints. `passed_over`, if given, receives
  /// what is wrong with each newer one.
  static std::optional<std::filesystem::path> latest(const std::filesystem::path& folder,
                                                     std::vector<std::string>* passed_over = nullptr);
  /// The steps of all checkpoints in a folder, good or not, in order; none if there is no such folder.
  static std::vector<int64_t> steps(const std::filesystem::path& folder);
  /// The checkpoint of a step: "FOLDER/step-000120".
  static std::filesystem::path at(const std::filesystem::path& folder, int64_t step);
  /// Gives a session's states what a checkpoint holds. Throws a user error if it is damaged, or another model's; then
  /// none has changed. In a session with a connection, every process calls it.
  static CheckpointFacts load(Session& session, const std::filesystem::path& checkpoint);
  /// The names of a checkpoint's tensors.
  static std::vector<std::string> tensors(const std::filesystem::path& checkpoint);
  /// What it says, without its tensors.
  static CheckpointFacts facts(const std::filesystem::path& checkpoint);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Throws user errors that name the tensor, operator or word that is wrong.
TrainingStep training_step(const Model& model, const Training& training);

/// The model's loss without training: outputs "loss" and those of each LossTerm. Its parameters are states that a
/// session of the training step changes (SessionOptions::share_states).
Model evaluation(const Model& model, const Training& training);

/// Where a step first computed numbers that are not finite.
struct NotFinite {
  std::string tensor;    ///< the first one, by its name in the step
  std::string made_by;   ///< "Log 'h'"; "the input", "the parameter" or "the constant" if no operator made it
  int64_t elements = 0;  ///< of the tensor
  int64_t nans = 0, infinities = 0;
  /// What the operator took: "'x' from -3 to 2"
  std::vector<std::string> operands;
};

/// Repeats a step whose loss or norm of gradients is not finite, on the states of its session, which it does not
/// change. Returns the first tensor that is not finite although all operands of its operator are; nullopt if all
/// tensors are finite this time. Keeps all tensors of the step at once, so that it needs more memory than the step.
/// With a connection, all processes call it; the result is in that of rank 0.
std::optional<NotFinite> first_not_finite(const Program& program, const Session& session, SessionOptions options,
                                          const Tensors& inputs);

/// Throws the user error of write_trained for the first parameter of a step whose value the model cannot hold. Call it
/// before training.
void require_can_hold(const Model& model, const TrainingStep& step);

/// Writes a model as ONNX, with these values of the parameters of those names, and all else as it was read. Tensors
/// beyond a gigabyte together go to a file beside it. Throws a user error for a name that is not an initializer or
/// constant of the model's graph, for another dtype or shape, and for a path that cannot be written.
void write_trained(const Model& model, const Tensors& parameters, const std::filesystem::path& path);

}  // namespace v1
}  // namespace tessera
