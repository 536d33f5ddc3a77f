#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "tessera/cli/train_options.h"
#include "tessera/data/batches.h"

namespace tessera::cli {

/// The batches of a training run, checked against what the model takes.
class TrainingData {
 public:
  /// The model with those initializers as inputs for which the data have arrays (default_inputs.h).
  static Model feeds(const Model& model, const TrainOptions& options);
  /// Throws user errors: no data, an input that the data lacks, a file that is wrong, batches that take more than
  /// `memory_limit` bytes (0: what the machine has).
  TrainingData(const TrainOptions& options, const Model& model, const Training& training, size_t memory_limit)
      : TrainingData(options, model, training, options.data, false, memory_limit) {}
  /// What evaluations take, each sample once; nullopt if nothing is kept for them.
  static std::optional<TrainingData> for_evaluation(const TrainOptions& options, const Model& model,
                                                    const Training& training, size_t memory_limit);

  /// Compares the checksums of files that have some; leaves off once `stops` returns true.
  void verify(const std::function<bool()>& stops) const { batches_->verify(stops); }
  /// Arrays of a batch without elements: their extents alone.
  Tensors extents() const;
  /// Prepares batches for a step from now on: arrays of other types become the step's inputs' where no element changes,
  /// and labels and tokens have ranges.
  void prepare_for(const TrainingStep& step) {
    inputs_ = step.model.inputs();
    ranges_ = step.ranges;
  }
  /// A value out of range is a user error.
  data::Batch at(int64_t cursor) const;
  /// The batch at the cursor; its values are not looked at.
  data::Batch next();
  /// What is out of range in a batch, with its array, step and place; empty: nothing.
  std::string range_problem(const data::Batch& batch) const;
  int64_t cursor() const { return batches_->cursor(); }
  void seek(int64_t cursor) { batches_->seek(cursor); }
  /// The steps to train: `asked`, or, if that is 0, all that the data has. Throws a user error if it has fewer.
  int steps(int asked) const;
  /// Labels in a step, those that are ignored included; samples if there are no labels.
  int64_t labels_per_step() const { return labels_per_step_; }
  /// Extents of the arrays that are labels, where the data and not the model say them: none of files of tokens, whose
  /// labels are those of [batch, sequence, classes].
  const std::map<std::string, Dims>& given_label_dims() const { return given_label_dims_; }
  /// What the order of samples follows from, by the options that say it: names, types, weights and bytes of the files
  /// (not their folders), "sequence", "seed", ….
  const std::map<std::string, std::string>& identity() const { return identity_; }
  std::optional<int64_t> count() const { return batches_->count(); }

 private:
  TrainingData(const TrainOptions& options, const Model& model, const Training& training, const std::string& source,
               bool evaluates, size_t memory_limit);
  void check_arrays(const Model& model, const std::vector<LossTerm>& terms, const std::string& labels, bool arrays);
  data::Batch ready(data::Batch batch) const;

  std::string source_;
  std::map<std::string, std::string> identity_;
  std::unique_ptr<data::Batches> batches_;
  int64_t labels_per_step_ = 0;
  std::map<std::string, Dims> given_label_dims_;
  std::vector<TensorInfo> inputs_;  // of the step
  std::vector<IndexRange> ranges_;
  bool draws_samples_ = false;  // of files of tokens
};

}  // namespace tessera::cli
