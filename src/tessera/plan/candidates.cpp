#include "tessera/plan/candidates.h"

#include <algorithm>
#include <limits>
#include <set>

#include "tessera/base/error.h"
#include "tessera/inspect.h"
#include "tessera/plan/samples.h"

namespace tessera::plan {
namespace {

int64_t peak_of(const Program& program) {
  int64_t most = 0;
  for (const int64_t rank : program.unlike_ranks()) most = std::max(most, program.figures(rank).peak_bytes);
  return most;
}

// The axes of a collective, without sub-axes: "dp,tp" for "dp,tp:(1)2".
std::string axes_of(const CollectiveSummary& collective) {
  std::string text;
  std::set<std::string> known;
  for (const std::string& axis : collective.axes)
    if (const std::string whole = axis.substr(0, axis.find(':')); known.insert(whole).second)
      text += (text.empty() ? "" : ",") + whole;
  return text;
}

// A machine on which products run at the peak rate, and nothing else takes time.
MachineModel ideal(MachineModel machine) {
  double fastest = 0;
  for (const auto& [signature, kernel] : machine.kernels)
    if (kernel.seconds > 0) fastest = std::max(fastest, kernel.flops / kernel.seconds);
  for (auto& [dtype, product] : machine.products) product = {std::max(product.flops, fastest), {0, 0, 0}};
  machine.kernel = 0;
  machine.kernels.clear();
  machine.bandwidths = {{std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()}};
  return machine;
}

}  // namespace

Objective objective_of(const PlannerSettings& settings) {
  return settings.objective == PlanObjective::memory ? Objective::bytes : Objective::seconds;
}

PlannedModel::PlannedModel(const Model& model, const PlannerSettings& settings)
    : settings_(settings), sizes_(model.complete(settings.fixed.shapes)), model_(model) {
  if (!settings.training) model_ = model.for_program(sizes_, {});
  inspection_ = inspect(model_, settings_.training ? sizes_ : SymbolSizes());
}

const TrainingStep& PlannedModel::step(int micro_batches) const {
  if (const auto known = steps_.find(micro_batches); known != steps_.end()) return known->second;
  Training training = *settings_.training;
  training.micro_batches = micro_batches;
  training.sizes = sizes_;
  if (settings_.fixed.dtype) training.compute = *settings_.fixed.dtype;
  return steps_.emplace(micro_batches, training_step(model_, training)).first->second;
}

Program PlannedModel::compiled(const Plan& plan, const Mesh& mesh) const {
  CompileOptions options;
  options.run.overlap = settings_.predict.overlap;
  settings_.predict.choose(options, mesh);
  Plan asked = plan;
  if (asked.overlap.empty()) asked.overlap = "off";  // rings are chosen for the plan that is found
  if (!settings_.training) {
    asked.shapes = sizes_;
    return compile(model_, mesh, asked, options);
  }
  asked.shapes.clear();  // the step has these sizes only
  asked.dtype.reset();
  return compile(step(std::max(1, plan.micro_batches)).model, mesh, asked, options);
}

Prediction PlannedModel::predicted(const Program& program) const {
  return predict(program, settings_.predict);
}

Facts PlannedModel::facts() const {
  Plan alone;
  alone.dtype = settings_.fixed.dtype;
  alone.states = settings_.fixed.states;
  const Program program = compiled(alone, {});
  PredictSettings settings = settings_.predict;
  settings.machine = ideal(settings.machine);
  Facts facts;
  facts.batch = batch();
  facts.ideal_seconds = predict(program, settings).computation_ms * 1e-3;
  std::set<std::string> optimizer, trained;
  if (settings_.training) {
    optimizer.insert(step(1).optimizer.begin(), step(1).optimizer.end());
    trained.insert(step(1).parameters.begin(), step(1).parameters.end());
  }
  const DType compute =
      settings_.fixed.dtype.value_or(settings_.training ? settings_.training->compute : DType::float32);
  const double narrow = compute == DType::float32 ? 1 : 0.5;
  for (const StateInfo& state : program.states()) {
    const auto bytes = static_cast<double>(state.bytes);
    (optimizer.contains(state.tensor.name) ? facts.optimizer_bytes : facts.parameter_bytes) += bytes;
    if (trained.contains(state.tensor.name)) facts.gradient_bytes += bytes;
    if (!optimizer.contains(state.tensor.name)) facts.gathered_bytes += bytes * narrow;
  }
  return facts;
}

bool PlannedModel::has_experts() const {
  return std::any_of(inspection_.rewritten.begin(), inspection_.rewritten.end(),
                     [](const OperatorCount& each) { return each.op == "tessera.Experts"; });
}

int64_t PlannedModel::context() const {
  return context_extent(model_, sizes_);
}

int64_t PlannedModel::batch() const {
  return samples_and_tokens(model_, sizes_).first;
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

// Those that will probably not fit come last, the smallest of them first.
double Candidates::expected_cost(size_t candidate) {
  constexpr double kUnfit = 1e9;
  const Outcome estimate = estimator_.of(choices_[candidate]);
  if (settings_.objective == PlanObjective::memory) return estimate.bytes;
  return limit_ > 0 && estimate.bytes > limit_ ? kUnfit * estimate.bytes / limit_ : estimate.seconds;
}

Outcome Candidates::evaluate(size_t candidate) {
  const Choice& choice = choices_[candidate];
  if (settings_.observe)
    settings_.observe({evaluated_, static_cast<int64_t>(choices_.size()), choice.str(),
                       kept_.empty() ? 0 : kept_.front().prediction.step_ms});
  ++evaluated_;
  const auto begin = std::chrono::steady_clock::now();
  const auto note_time = [&] {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    seconds_per_micro_batch_ = std::max(seconds_per_micro_batch_, passed.count() / choice.micro_batches);
  };
  try {
    Program program = model_.compiled(choice.over(settings_.fixed), choice.mesh);
    Measured measured{choice, 0, 0, 0, static_cast<double>(peak_of(program)), {}};
    for (const CollectiveSummary& collective : program.summary().collectives)
      measured.received[axes_of(collective)] += static_cast<double>(collective.bytes);
    Outcome outcome{0, measured.bytes, {}};
    if (limit_ == 0 || measured.bytes <= limit_) {
      Prediction prediction = model_.predicted(program);
      outcome.seconds = measured.seconds = prediction.step_ms * 1e-3;
      measured.compute_seconds = prediction.compute_ms * 1e-3;
      measured.kernel_seconds = prediction.computation_ms * 1e-3;
      keep({candidate, outcome, std::move(program), std::move(prediction)});
    }
    estimator_.learn(std::move(measured));
    note_time();
    return outcome;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::user) throw;
    return {0, 0, error.what()};
  }
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
  constexpr size_t kMeasured = 16;  // of which one may turn out to be the best
  if (kept_.size() > std::max<size_t>(settings_.measure ? kMeasured : 1, settings_.best)) kept_.pop_back();
}

void Candidates::sort_kept() {
  std::stable_sort(kept_.begin(), kept_.end(), [&](const Kept& a, const Kept& b) {
    return is_better(a.outcome, b.outcome, objective_of(settings_));
  });
}

void Candidates::predict_again() {
  for (Kept& each : kept_) {
    each.prediction = model_.predicted(each.program);
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

double Candidates::seconds_of(size_t candidate) const {
  if (evaluated_ == 0 && seconds_per_micro_batch_ == 0)
    return choices_[candidate].micro_batches == fewest_micro_batches_ ? 0 : std::numeric_limits<double>::infinity();
  return seconds_per_micro_batch_ * choices_[candidate].micro_batches;
}

}  // namespace tessera::plan
