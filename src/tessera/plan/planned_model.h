#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/inspect.h"
#include "tessera/plan/estimate.h"
#include "tessera/plan/extrapolation.h"
#include "tessera/plan/tensor_kinds.h"
#include "tessera/planner.h"

namespace tessera::plan {

/// Whether programs of few blocks can stand for the whole model in a search with a limit of time: the model has many
/// blocks, what is fixed treats them alike, and nothing is measured. Throws user errors for an invalid model.
bool may_extrapolate(const Model& model, const PlannerSettings& settings);

/// A model, and its training steps, at the sizes of a search. Programs can have fewer alike blocks and micro-batches
/// than the whole, to stand for it (extrapolation.h).
class PlannedModel {
 public:
  /// Throws user errors for an invalid model.
  PlannedModel(const Model& model, const PlannerSettings& settings);

  /// The whole model, with that many micro-batches.
  Scale whole(int micro_batches) const { return {blocks_, micro_batches}; }
  /// Whether programs of fewer blocks and micro-batches stand for the whole: the search has a limit of time,
  /// may_extrapolate() holds, and programs of few blocks can be compiled.
  bool extrapolates() const { return extrapolates_; }
  /// The program of a plan over a mesh, at a scale; its micro-batches have the size that the plan's have. Throws user
  /// errors as compile() does.
  Program compiled(const Plan& plan, const Mesh& mesh, const Scale& scale) const;

  /// What is known before any candidate is compiled.
  const Facts& facts() const { return facts_; }
  const SymbolSizes& sizes() const { return sizes_; }
  bool has_experts() const;
  /// Of its parameters.
  std::vector<TensorKind> kinds() const { return kinds_of(inspection_.weights, settings_.fixed); }
  /// The tokens of a sequence that attention sees; 0 if it has no attention, or none whose queries are those of an
  /// input.
  int64_t context() const;
  /// The samples of a batch: the first extent of the first input that has dimensions; 1 if there is none.
  int64_t batch() const { return batch_; }

 private:
  const TrainingStep& step(const Scale& scale, int64_t batch) const;
  const Model& with_blocks(int64_t count) const;
  Facts facts_of(int64_t blocks) const;
  void find_facts();

  const PlannerSettings& settings_;
  SymbolSizes sizes_;
  Model model_;
  Inspection inspection_;
  int64_t blocks_ = 0, batch_ = 1;
  std::string batch_symbol_;  ///< the symbol of the samples; "" if their number is fixed
  bool extrapolates_ = false;
  Facts facts_;
  mutable std::map<int64_t, Model> models_;                                  ///< by blocks
  mutable std::map<std::tuple<int64_t, int, int64_t>, TrainingStep> steps_;  ///< by scale and batch
};

/// From how many blocks, and micro-batches, candidates are extrapolated: the fewest with which steps settle. One block
/// or two have few neighbours, so communication finds less to hide behind; a step with one micro-batch adds no
/// gradients.
inline constexpr Counts kBlocks{3, 4}, kMicroBatches{2, 3};

}  // namespace tessera::plan
