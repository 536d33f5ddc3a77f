#include "tessera/plan/candidates.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/plan/probes.h"

namespace tessera::plan {
namespace {

using Clock = std::chrono::steady_clock;

// What compiling a program takes, in blocks: a little more for each, the more there are. What a model has beside its
// blocks counts like one of them.
double units_of(const Scale& scale) {
  constexpr double kDoubles = 64;  // as long for each block
  const double blocks = static_cast<double>(scale.blocks + 1) * scale.micro_batches;
  return blocks * (1 + blocks / kDoubles);
}

}  // namespace

Objective objective_of(const PlannerSettings& settings) {
  return settings.objective == PlanObjective::memory ? Objective::bytes : Objective::seconds;
}

Candidates::Candidates(const PlannedModel& model, const PlannerSettings& settings, const Space& space, double limit,
                       Estimator estimator)
    : model_(model),
      settings_(settings),
      limit_(limit),
      choices_(plan::choices(space)),
      estimator_(std::move(estimator)) {
  for (const Choice& choice : choices_)
    if (fewest_micro_batches_ == 0 || choice.micro_batches < fewest_micro_batches_)
      fewest_micro_batches_ = choice.micro_batches;
  if (model.extrapolates() && !settings.predict.machine.links.empty())
    probes_ = probes(choices_, std::max<int64_t>(1, settings.predict.machine.links.front().size));
}

size_t Candidates::add(Choice choice) {
  choice.kernels = choices_.size();  // as no other's
  choices_.push_back(std::move(choice));
  return choices_.size() - 1;
}

const Candidates::Kept& Candidates::kept_of(size_t layout) const {
  const auto found = std::find_if(kept_.begin(), kept_.end(),
                                  [&](const Kept& each) { return choices_[each.candidate].layout == layout; });
  check(found != kept_.end(), "a candidate of the layout was kept");
  return *found;
}

Bounds Candidates::bounds(size_t candidate) {
  const Choice& choice = choices_[candidate];
  Bounds bounds = plan::bounds_of(choice, estimator_.facts());
  bounds.seconds = std::max(bounds.seconds, estimator_.least_seconds(choice));
  return bounds;
}

// Those that will probably not fit come last, the smallest of them first. If that is not sure, they come later.
double Candidates::expected_cost(size_t candidate) {
  constexpr double kUnfit = 1e9, kUnsure = 1.4;
  if (probes_.contains(candidate)) return 0;
  const Outcome estimate = estimator_.of(choices_[candidate]);
  if (settings_.objective == PlanObjective::memory) return estimate.bytes;
  const double excess = limit_ > 0 ? std::max(1.0, estimate.bytes / limit_) : 1;
  return excess < kUnsure && model_.extrapolates() ? estimate.seconds * excess
         : excess > 1                              ? kUnfit * excess
                                                   : estimate.seconds;
}

Outcome Candidates::evaluate(size_t candidate) {
  tell(candidate, "");
  ++evaluated_;
  const auto begin = Clock::now();
  try {
    Outcome outcome = evaluated(candidate, model_.extrapolates());
    const std::chrono::duration<double> passed = Clock::now() - begin;
    double& known = unit_seconds_[choices_[candidate].tensor];
    known = std::max(known, passed.count() / units(choices_[candidate]));
    return outcome;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::user) throw;
    return {0, 0, error.what()};
  }
}

Candidates::Correction Candidates::correction_of(const Choice& choice) const {
  const auto known = corrections_.find(choice.layout);
  return known == corrections_.end() ? Correction() : known->second;
}

Outcome Candidates::evaluated(size_t candidate, bool extrapolates) {
  if (const auto known = confirmed_.find(candidate); known != confirmed_.end()) {
    const Outcome outcome = known->second.outcome;
    if (outcome.refused.empty() && (limit_ == 0 || outcome.bytes <= limit_)) keep(known->second);
    return outcome;
  }
  const Choice& choice = choices_[candidate];
  const Scale whole = model_.whole(choice.micro_batches);
  ScaledProgram program(model_, choice.over(settings_.fixed), choice.mesh, whole, extrapolates);
  const Correction correction = extrapolates ? correction_of(choice) : Correction();
  Measured measured{choice, 0, 0, 0, program.peak(whole) * correction.bytes, program.received()};
  const Scale simulated = program.largest();
  Kept made{candidate, {0, measured.bytes, {}}, std::move(program), {}, {}, simulated};
  const bool fits = limit_ == 0 || measured.bytes <= limit_;
  if (fits) {
    made.parts = made.program.predictions(settings_.predict);
    made.prediction = sum_of({{made.program.predicted(whole, made.parts), correction.seconds}});
    made.outcome.seconds = measured.seconds = made.prediction.step_ms * 1e-3;
    measured.compute_seconds = made.prediction.compute_ms * 1e-3;
    measured.kernel_seconds = made.prediction.computation_ms * 1e-3;
  }
  estimator_.learn(std::move(measured));
  const Outcome outcome = made.outcome;
  if (!extrapolates && model_.extrapolates()) confirmed_.insert_or_assign(candidate, made);
  if (fits) keep(std::move(made));
  return outcome;
}

Outcome Candidates::evaluate_whole(size_t candidate, const Outcome& before) {
  tell(candidate, ", whole");
  try {
    const Outcome outcome = evaluated(candidate, false);
    // What was corrected already may not be in `before`, so the first correction stays.
    corrections_.try_emplace(choices_[candidate].layout, Correction{1, outcome.bytes / before.bytes});
    return outcome;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::user) throw;
    return {0, 0, error.what()};
  }
}

void Candidates::tell(size_t candidate, const char* how) const {
  if (settings_.observe)
    settings_.observe({evaluated_, static_cast<int64_t>(choices_.size()), choices_[candidate].str() + how,
                       kept_.empty() ? 0 : kept_.front().prediction.step_ms});
}

void Candidates::keep(Kept made) {
  const Objective objective = objective_of(settings_);
  const auto alike = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& each) {
    return choices_[each.candidate].layout == choices_[made.candidate].layout;
  });
  if (alike == kept_.end())
    kept_.push_back(std::move(made));
  else if (is_better(made.outcome, alike->outcome, objective))
    *alike = std::move(made);
  sort_kept();
  constexpr size_t kMore = 16;  // of which one may turn out to be the best
  const bool may_change = settings_.measure || model_.extrapolates();
  if (kept_.size() > std::max<size_t>(may_change ? kMore : 1, settings_.best)) kept_.pop_back();
}

void Candidates::sort_kept() {
  std::stable_sort(kept_.begin(), kept_.end(), [&](const Kept& a, const Kept& b) {
    return is_better(a.outcome, b.outcome, objective_of(settings_));
  });
}

std::optional<size_t> Candidates::to_confirm(double seconds, double more) const {
  constexpr double kNear = 1.1;
  if (kept_.empty()) return std::nullopt;
  if (!is_confirmed()) {
    const Choice& best = choices_[kept_.front().candidate];
    const double least = units_of(affordable(best, 0)) * unit_seconds(best);
    return least <= seconds + more ? std::optional<size_t>(0) : std::nullopt;
  }
  const auto cost = [&](const Kept& kept) {
    return settings_.objective == PlanObjective::memory ? kept.outcome.bytes : kept.outcome.seconds;
  };
  for (size_t i = 1; i < kept_.size(); ++i)
    if (const Kept& each = kept_[i]; each.program.is_extrapolated() && !confirmed_.contains(each.candidate) &&
                                     cost(each) < kNear * cost(kept_.front()) &&
                                     whole_seconds_of(each.candidate) < seconds)
      return i;
  return std::nullopt;
}

Outcome Candidates::confirm(size_t kept, double seconds) {
  const size_t candidate = kept_[kept].candidate;
  const Choice& choice = choices_[candidate];
  tell(candidate, ", whole");
  Outcome outcome;
  try {
    outcome = confirmed(kept_[kept], affordable(choice, seconds));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::user) throw;
    outcome.refused = error.what();
  }
  kept_[kept].outcome = outcome;
  confirmed_.insert_or_assign(candidate, kept_[kept]);
  if (!outcome.refused.empty() || (limit_ > 0 && outcome.bytes > limit_))
    kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(kept));
  sort_kept();
  return outcome;
}

Outcome Candidates::confirmed(Kept& best, const Scale& scale) {
  const Choice& choice = choices_[best.candidate];
  const Scale whole = best.program.whole();
  const Program program = model_.compiled(choice.over(settings_.fixed), choice.mesh, scale);
  Correction& correction = corrections_[choice.layout];
  correction.bytes = peak_of(program) / best.program.peak(scale);
  best.outcome.bytes = scale == whole ? peak_of(program) : best.program.peak(whole) * correction.bytes;
  if (limit_ > 0 && best.outcome.bytes > limit_) return {0, best.outcome.bytes, {}};
  const Prediction seen = predict(program, settings_.predict);
  correction.seconds = seen.step_ms / best.program.predicted(scale, best.parts).step_ms;
  best.prediction = scale == whole ? seen : sum_of({{best.program.predicted(whole, best.parts), correction.seconds}});
  best.outcome.seconds = best.prediction.step_ms * 1e-3;
  best.simulated = scale;
  return best.outcome;
}

// The whole, with two micro-batches at most, or with a quarter of the blocks.
Scale Candidates::affordable(const Choice& choice, double seconds) const {
  const Scale whole = model_.whole(choice.micro_batches);
  // As few as were compiled (samples_of()).
  const int fewer = whole.micro_batches <= static_cast<int>(kMicroBatches.more) ? whole.micro_batches
                                                                                : static_cast<int>(kMicroBatches.less);
  for (const Scale& scale : {whole, Scale{whole.blocks, fewer}})
    if (units_of(scale) * unit_seconds(choice) <= seconds) return scale;
  return {std::max(kBlocks.more, whole.blocks / 4), fewer};
}

double Candidates::whole_seconds_of(size_t candidate) const {
  const Choice& choice = choices_[candidate];
  return units_of(model_.whole(choice.micro_batches)) * unit_seconds(choice);
}

double Candidates::seconds_to_confirm() const {
  return kept_.empty() || is_confirmed() ? 0 : whole_seconds_of(kept_.front().candidate);
}

double Candidates::seconds_with(const Kept& kept, const PredictSettings& settings) const {
  const double correction = kept.program.is_extrapolated() ? correction_of(choices_[kept.candidate]).seconds : 1;
  return kept.program.predicted(settings).step_ms * correction * 1e-3;
}

void Candidates::predict_again() {
  for (Kept& each : kept_) {
    each.prediction = each.program.predicted(settings_.predict);
    each.outcome.seconds = each.prediction.step_ms * 1e-3;
  }
  sort_kept();
}

size_t Candidates::smallest(double seconds) const {
  const auto key = [&](size_t candidate) {
    return std::pair(seconds_of(candidate) > seconds, estimator_.of(choices_[candidate]).bytes);
  };
  size_t best = 0;
  for (size_t i = 1; i < choices_.size(); ++i)
    if (key(i) < key(best)) best = i;
  return best;
}

double Candidates::units(const Choice& choice) const {
  const Scale whole = model_.whole(choice.micro_batches);
  if (!model_.extrapolates()) return units_of(whole);
  double sum = 0;
  for (const Sample& sample : samples_of(whole, kBlocks, kMicroBatches)) sum += units_of(sample.scale);
  return sum;
}

// As long as with the same presets within layers; if these are new, as with any others.
double Candidates::unit_seconds(const Choice& choice) const {
  const auto known = unit_seconds_.find(choice.tensor);
  if (known != unit_seconds_.end()) return known->second;
  double most = 0;
  for (const auto& [tensor, seconds] : unit_seconds_) most = std::max(most, seconds);
  return most;
}

double Candidates::seconds_of(size_t candidate) const {
  if (unit_seconds_.empty())
    return choices_[candidate].micro_batches == fewest_micro_batches_ ? 0 : std::numeric_limits<double>::infinity();
  return unit_seconds(choices_[candidate]) * units(choices_[candidate]);
}

}  // namespace tessera::plan
