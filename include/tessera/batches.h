#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/training.h"

/// The input of a training run: named arrays for each step, in an order that depends on the data alone.
namespace tessera {
inline namespace v1 {

/// The batch of one step.
struct Batch {
  int64_t first = 0;  ///< its position
  int64_t next = 0;   ///< the position after it
  Tensors tensors;    ///< whole arrays, by the names of the model's inputs and of labels
};

/// How files become batches (docs/data.md).
struct BatchOptions {
  int64_t batch = 0;               ///< samples of a step, for files of tokens; 0: 8
  int64_t sequence = 0;            ///< tokens of a sample, for files of tokens; at least 1
  std::string document_separator;  ///< what ends a document, as "\n\n" or "token:0"; nothing is predicted across it
  double held_out = 0;             ///< the fraction of each file of tokens that is kept for evaluations, 0 to 0.9
  /// Takes each sample of files of tokens once, in order, as evaluations do: those held out, if there are any.
  bool evaluates = false;
  uint64_t seed = 0;        ///< of the order of samples
  size_t memory_limit = 0;  ///< bytes that batches may take; 0: what the machine has
};

/// The batches of a training run, in order or at any position. A batch depends only on its position,
/// which is what a checkpoint keeps. The functions that make them throw a user error for an input of the model that has
/// no array, and for an array that is neither an input nor what the loss compares with. In a run of several processes,
/// all make the same.
class Batches {
 public:
  /// Reads files: "x.npz", whose arrays have one slice for each step along their first dimension; or files of tokens,
  /// as "corpus.txt" or "a.bin:uint16:0.7,b.txt:0.3" (mixed by weights), from which samples are drawn. Tokens go to the
  /// model's first int64 input, [batch, sequence]. Throws user errors for files that cannot be read, and for options
  /// that do not fit them.
  static Batches open(const std::string& data, const Model& model, const Training& training,
                      const BatchOptions& options = {});
  /// Reads .npy files, by the names of their arrays, which have one slice for each step along their first dimension.
  static Batches read(const std::map<std::string, std::filesystem::path>& arrays, const Model& model,
                      const Training& training);
  /// Takes arrays that have one slice for each step along their first dimension.
  static Batches of(const Tensors& arrays, const Model& model, const Training& training);
  /// Calls `make` for the arrays of each step, by its position 0, 1, …: it must return the same arrays for the same
  /// position, and arrays of the same extents for all positions. `count`: the number of steps; nullopt: unlimited.
  /// Position 0 is requested at once. Calls come from the thread that requests a batch. `what` names the data in
  /// checkpoints; a run with data of another name does not resume from these.
  static Batches made_by(std::function<Tensors(int64_t position)> make, std::optional<int64_t> count,
                         const Model& model, const Training& training, const std::string& what = "a function");
  /// The files that open() reads. Throws a user error if the text names none.
  static std::vector<std::filesystem::path> files(const std::string& data);
  /// The model for open(): those of its default_inputs() for which the files have arrays become inputs
  /// (default_inputs.h).
  static Model fed(const Model& model, const std::string& data);
  ~Batches();
  Batches(Batches&&) noexcept;
  Batches& operator=(Batches&&) noexcept;

  /// The batch at the current position, which then advances.
  Batch next();
  /// The batch at any position. Throws a user error for a value that is out of range (prepare_for).
  Batch at(int64_t position) const;
  /// The position of the next batch: the number of samples (of files of tokens) or steps before it.
  int64_t position() const;
  void seek(int64_t position);
  /// The number of batches from position 0 to the end; nullopt if they never end.
  std::optional<int64_t> count() const;
  /// The steps to train: `asked` or, if that is 0, all that there are. Throws a user error if there are fewer, and for
  /// 0 if they never end.
  int64_t steps(int64_t asked) const;

  /// The arrays of a batch without elements, for their extents.
  Tensors extents() const;
  /// Extents of the arrays that are labels but not inputs, if the model does not say which of their dimensions is
  /// which: Training::label_dims.
  const std::map<std::string, Dims>& label_dims() const;
  /// Labels in a batch, those that are ignored included; samples if there are no labels.
  int64_t labels_per_batch() const;
  /// `training` with the sizes and label_dims that follow from these batches. Sizes that it states stay.
  Training complete(const Training& training) const;

  /// From now on, batches are made for this step: arrays are converted to the types of its inputs where no element
  /// changes, and labels and tokens are checked against their ranges.
  void prepare_for(const TrainingStep& step);
  /// The value of a batch that is out of range, with its array, position and place; "" if there is none.
  std::string range_problem(const Batch& batch) const;
  /// Reads all of a .npz file and compares its checksums, which making batches does not; ends early once `stops`
  /// returns true. Throws a user error that names the array.
  void verify(const std::function<bool()>& stops = [] { return false; }) const;
  /// The settings that determine the order of samples: "data" (names, types, weights and bytes of files, not their
  /// folders), "sequence", "seed", …
  const std::map<std::string, std::string>& identity() const;

 private:
  struct Impl;
  explicit Batches(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace v1
}  // namespace tessera
