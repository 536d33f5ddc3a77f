#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tessera/plan/estimate.h"
#include "tessera/plan/scaled_program.h"

/// Candidates of find_plan(), compiled and simulated by the public API.
namespace tessera::plan {

/// Compiles candidates, simulates those that fit, learns from both, and keeps the best of those with the same layouts.
/// If the model extrapolates, outcomes follow from small programs until confirm() looks at larger ones.
class Candidates : public Evaluator {
 public:
  struct Kept {
    size_t candidate = 0;
    Outcome outcome;
    ScaledProgram program;
    std::vector<Prediction> parts;  ///< of the program's parts, as they were extrapolated from
    Prediction prediction;
    Scale simulated;  ///< the largest program that the outcome follows from
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
  /// Whether the best one's outcome is that of its whole program, or follows from the largest one that there was time
  /// for.
  bool is_confirmed() const {
    return !kept_.front().program.is_extrapolated() || confirmed_.contains(kept_.front().candidate);
  }
  /// Which of those that were kept confirm() should take next: the best one, if `seconds` and `more` are enough for the
  /// least that confirm() looks at, and then those that are nearly as good and whose whole programs take at most
  /// `seconds`. Nullopt: none.
  std::optional<size_t> to_confirm(double seconds, double more) const;
  /// Compiles and simulates the whole program of one that was kept, or the largest program for which `seconds` are
  /// enough, but at least a quarter of the blocks. Corrects what was extrapolated for it and for others of its layout.
  /// It is kept no longer if it does not fit.
  Outcome confirm(size_t kept, double seconds);
  /// Evaluates one that was not kept once more, by its whole program, and corrects others of its layout. `before`: what
  /// was extrapolated for it.
  Outcome evaluate_whole(size_t candidate, const Outcome& before);
  bool extrapolates() const { return model_.extrapolates(); }
  /// Whether its outcome is that of a program that confirm() or evaluate_whole() looked at.
  bool was_seen(size_t candidate) const { return confirmed_.contains(candidate); }
  /// Seconds that compiling and simulating its whole program will take.
  double whole_seconds_of(size_t candidate) const;
  /// Seconds that this will take for the best one's whole program; 0 if nothing is extrapolated, or the best one is
  /// confirmed.
  double seconds_to_confirm() const;
  /// The step's time on a machine that was changed, corrected likewise.
  double seconds_with(const Kept& kept, const PredictSettings& settings) const;
  /// The candidate of least estimated bytes among those that can be evaluated within `seconds`, or among all if there
  /// are none.
  size_t smallest(double seconds) const;
  /// Seconds that evaluating a candidate will take: as long as earlier ones, in proportion to blocks and micro-batches,
  /// each of which has operators of its own. Before the first evaluation, 0 for the fewest micro-batches, infinite for
  /// others.
  double seconds_of(size_t candidate) const;
  /// Expects evaluations to take as long as those of another search over the same model.
  void expect_times_of(const Candidates& other) { unit_seconds_ = other.unit_seconds_; }
  /// Simulates all that were kept once more, since `settings` know more of the machine now.
  void predict_again();
  bool any_fits() const { return !kept_.empty(); }

 private:
  // What programs of a layout need, over what was extrapolated for them.
  struct Correction {
    double seconds = 1, bytes = 1;
  };
  Outcome evaluated(size_t candidate, bool extrapolates);
  void tell(size_t candidate, const char* how) const;
  void keep(Kept made);
  void sort_kept();
  Correction correction_of(const Choice& choice) const;
  Outcome confirmed(Kept& best, const Scale& scale);
  Scale affordable(const Choice& choice, double seconds) const;
  double units(const Choice& choice) const;
  double unit_seconds(const Choice& choice) const;

  const PlannedModel& model_;
  const PlannerSettings& settings_;
  const double limit_;
  std::vector<Choice> choices_;
  Estimator estimator_;
  std::set<size_t> probes_;  ///< if programs are extrapolated; evaluated before all others
  std::vector<Kept> kept_;
  std::map<size_t, Correction> corrections_;  ///< by layout
  std::map<size_t, Kept> confirmed_;          ///< by candidate, as it was seen
  int64_t evaluated_ = 0;
  int fewest_micro_batches_ = 0;
  std::map<std::string, double> unit_seconds_;  ///< by Choice::tensor: the most that one took
};

Objective objective_of(const PlannerSettings& settings);

}  // namespace tessera::plan
