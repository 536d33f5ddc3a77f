#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "tessera/plan/estimate.h"
#include "tessera/plan/tensor_kinds.h"
#include "tessera/planner.h"

/// Candidates of find_plan(), compiled and simulated by the public API.
namespace tessera::plan {

/// A model, and its training steps by number of micro-batches, at the sizes of a search.
class PlannedModel {
 public:
  PlannedModel(const Model& model, const PlannerSettings& settings);

  /// The program of a plan over a mesh; its micro-batches are the plan's. Throws user errors as compile() does.
  Program compiled(const Plan& plan, const Mesh& mesh) const;
  /// What is known before any candidate is compiled. Throws user errors for an invalid model.
  Facts facts() const;
  Prediction predicted(const Program& program) const;

  const SymbolSizes& sizes() const { return sizes_; }
  bool has_experts() const;
  /// Of its parameters.
  std::vector<TensorKind> kinds() const { return kinds_of(inspection_.weights, settings_.fixed); }
  /// The tokens of a sequence that attention sees; 0 if it has no attention, or none whose queries are those of an
  /// input.
  int64_t context() const;
  /// The samples of a batch: the first extent of the first input that has dimensions; 1 if there is none.
  int64_t batch() const;

 private:
  const TrainingStep& step(int micro_batches) const;

  const PlannerSettings& settings_;
  SymbolSizes sizes_;
  Model model_;
  Inspection inspection_;
  mutable std::map<int, TrainingStep> steps_;
};

/// Compiles candidates, simulates those that fit, learns from both, and keeps the best of those with the same layouts.
class Candidates : public Evaluator {
 public:
  struct Kept {
    size_t candidate = 0;
    Outcome outcome;
    Program program;
    Prediction prediction;
  };

  /// `limit`: bytes of a rank; 0: no limit.
  Candidates(const PlannedModel& model, const PlannerSettings& settings, const Space& space, double limit,
             Estimator estimator);

  const std::vector<Choice>& choices() const { return choices_; }
  /// Adds a candidate with annotations; its number.
  size_t add(Choice choice);
  /// The best one of a layout that fits.
  const Kept& kept_of(size_t layout) const;
  const Estimator& estimator() const { return estimator_; }
  Bounds bounds(size_t candidate) override;
  double expected_cost(size_t candidate) override;
  Outcome evaluate(size_t candidate) override;
  /// The best one of each layout among those that fit, the best first.
  const std::vector<Kept>& kept() const { return kept_; }
  /// The candidate of least estimated bytes among those that can be evaluated within `seconds`, or among all if there
  /// are none.
  size_t smallest(double seconds) const;
  /// Seconds that evaluating a candidate will take: those of an earlier one, in proportion to micro-batches, each of
  /// which has operators of its own. Before the first evaluation, 0 for the fewest micro-batches, infinite for others.
  double seconds_of(size_t candidate) const;
  /// Expects evaluations to take as long as those of another search over the same model.
  void expect_times_of(const Candidates& other) { seconds_per_micro_batch_ = other.seconds_per_micro_batch_; }
  /// Simulates all that were kept once more, since `settings` know more of the machine now.
  void predict_again();
  bool any_fits() const { return !kept_.empty(); }

 private:
  void keep(Kept made);
  void sort_kept();

  const PlannedModel& model_;
  const PlannerSettings& settings_;
  const double limit_;
  std::vector<Choice> choices_;
  Estimator estimator_;
  std::vector<Kept> kept_;
  int64_t evaluated_ = 0;
  int fewest_micro_batches_ = 0;
  double seconds_per_micro_batch_ = 0;  ///< the most that an evaluation took
};

Objective objective_of(const PlannerSettings& settings);

}  // namespace tessera::plan
