#pragma once

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
  /// Throws user errors: no data, an input that the data lacks, a file that is wrong.
  TrainingData(const TrainOptions& options, const Model& model, const Training& training)
      : TrainingData(options, model, training, options.data, false) {}
  /// What evaluations take, each sample once; nullopt if nothing is kept for them.
  static std::optional<TrainingData> for_evaluation(const TrainOptions& options, const Model& model,
                                                    const Training& training);

  data::Batch at(int64_t cursor) const { return batches_->at(cursor); }
  data::Batch next() { return batches_->next(); }
  int64_t cursor() const { return batches_->cursor(); }
  void seek(int64_t cursor) { batches_->seek(cursor); }
  /// The steps to train: `asked`, or, if that is 0, all that the data has. Throws a user error if it has fewer.
  int steps(int asked) const;
  /// Labels in a step, those that are ignored included; samples if there are no labels.
  int64_t labels_per_step() const { return labels_per_step_; }
  /// What the order of samples follows from, by the options that say it: names, types, weights and bytes of the files
  /// (not their folders), "sequence", "seed", ….
  const std::map<std::string, std::string>& identity() const { return identity_; }
  std::optional<int64_t> count() const { return batches_->count(); }

 private:
  TrainingData(const TrainOptions& options, const Model& model, const Training& training, const std::string& source,
               bool evaluates);

  std::string source_;
  std::map<std::string, std::string> identity_;
  std::unique_ptr<data::Batches> batches_;
  int64_t labels_per_step_ = 0;
};

}  // namespace tessera::cli
