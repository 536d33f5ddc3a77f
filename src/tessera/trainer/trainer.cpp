#include "tessera/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "tessera/base/unmoved.h"
#include "tessera/ir/pages.h"
#include "tessera/trainer/impl.h"
#include "tessera/trainer/words.h"

namespace tessera {
inline namespace v1 {

using trainer::called;
using trainer::refuse;

namespace {

double number_of(const Tensors& outputs, const std::string& name) {
  return static_cast<double>(outputs.at(name).as<float>()[0]);
}

std::string joined_names(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : " and ") + name;
  return text;
}

// The given limit of a process, or its part of the machine's memory.
TrainingSetup setup_of(const Mesh& mesh, const Plan& plan, const TrainerOptions& options) {
  const SessionOptions& session = options.session;
  TrainingSetup setup;
  setup.mesh = mesh;
  setup.plan = plan;
  setup.compile.run.threads_per_rank = session.threads_per_rank;
  setup.compile.run.overlap = session.overlap;
  setup.compile.run.prefetch = session.prefetch;
  setup.compile.run.checkpoints = options.checkpoints != nullptr;
  int here = 1;  // processes
  if (session.connection) here = setup.compile.run.machine_ranks = session.connection->launch().local_size;
  setup.compile.run.process_ranks = session.connection ? 1 : 0;  // all
  setup.compile.memory_limit =
      session.memory_limit > 0 ? session.memory_limit : machine_memory() / static_cast<size_t>(here);
  setup.observer = options.observer;
  return setup;
}

}  // namespace

Trainer::Impl::Impl(const Model& model, TrainingPrograms programs, Batches data, TrainerOptions options)
    : model(model),
      programs(std::move(programs)),
      session_options(options.session),
      observer(options.observer),
      terms(loss_terms(this->programs.training.loss)),
      data(std::move(data)),
      evaluated(std::move(options.evaluated)),
      checkpoints(std::move(options.checkpoints)) {
  const TrainingStep& step = this->programs.step;
  const std::vector<TensorInfo> outputs = step.model.outputs();
  is_dynamic = std::any_of(outputs.begin(), outputs.end(), [](const TensorInfo& o) { return o.name == "loss_scale"; });
  this->data.prepare_for(step);
  const Tensors inputs = this->data.at(this->data.position()).tensors;
  SessionOptions own = session_options;
  own.checkpoints = checkpoints != nullptr;
  session_options.profile = session_options.checkpoints = false;
  {
    const auto loading = phase("loading weights");
    session = std::make_unique<Session>(this->programs.program, own);
    peaks = session->peak_bytes(inputs);
    process_bytes = largest(session->process_bytes());
  }
  if (checkpoints) beside_other = largest(speaks() && !Checkpoints::steps(checkpoints->folder()).empty()) > 0;
  if (evaluated && !this->programs.evaluation)
    throw Error(ErrorKind::user, "train",
                "there are batches to evaluate, but no program that does; compile the run with an evaluation");
  if (!evaluated || !this->programs.evaluation) return;
  const int64_t asked = options.evaluated_batches;
  const std::optional<int64_t> there = evaluated->count();
  if (!there && asked == 0) refuse("the batches to evaluate have no end; say how many an evaluation takes");
  evaluated_batches = asked > 0 ? std::min(asked, there.value_or(asked)) : *there;
  prepare_evaluations();
}

// Everything that an evaluation needs is done before the first step, so that it cannot fail at the end.
void Trainer::Impl::prepare_evaluations() {
  SessionOptions options = session_options;
  options.share_states = session.get();
  evaluated->prepare_for(programs.step);
  evaluation = std::make_unique<Session>(*programs.evaluation, options);
  const auto preparing = phase("preparing evaluations");
  int64_t position = 0;
  for (int64_t i = 0; i < evaluated_batches; ++i) {
    const Batch batch = evaluated->at(position);
    if (i == 0) evaluation->peak_bytes(batch.tensors);
    position = batch.next;
  }
}

bool Trainer::Impl::speaks() const {
  return !session_options.connection || session_options.connection->launch().rank == 0;
}

int64_t Trainer::Impl::largest(int64_t value) const {
  if (!session_options.connection) return value;
  const std::vector<int64_t> all = session_options.connection->from_all(value);
  return *std::max_element(all.begin(), all.end());
}

std::shared_ptr<void> Trainer::Impl::phase(const std::string& what) const {
  return observer ? observer->on_phase(what) : nullptr;
}

void Trainer::Impl::warn(const std::string& message) const {
  if (observer) observer->on_warning(message);
}

void Trainer::Impl::warn_of_checkpoint(const std::string& what, const char* what_follows) const {
  if (!what.empty()) warn("the checkpoint: " + what + what_follows);
}

StepFigures Trainer::Impl::run(const Batch& batch) {
  const auto start = std::chrono::steady_clock::now();
  const Tensors outputs = session->run(batch.tensors);
  StepFigures figures;
  figures.step = made + 1;
  figures.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  figures.labels = data.labels_per_batch();
  if (!speaks()) return figures;
  figures.loss = number_of(outputs, "loss");
  figures.grad_norm = number_of(outputs, "grad_norm");
  figures.learning_rate = number_of(outputs, "learning_rate");
  if (terms.size() > 1)
    for (const LossTerm& term : terms) figures.terms.emplace_back(term.label, number_of(outputs, term.loss));
  if (is_dynamic) {
    figures.loss_scale = number_of(outputs, "loss_scale");
    figures.skipped = !std::isfinite(figures.grad_norm);
  }
  return figures;
}

Trainer::Impl::Next Trainer::Impl::step(const std::function<bool()>& stops) {
  std::shared_ptr<void> beginning = made == first ? phase("first step") : nullptr;
  const Batch batch = data.next();
  require_in_range(batch);
  last = run(batch);
  beginning.reset();
  skipped += last.skipped;
  skipped_in_a_row = last.skipped ? skipped_in_a_row + 1 : 0;
  if (observer) observer->on_step(last);
  const Next next = next_of(stops);
  if (next == Next::diverged) fail_diverged(batch.tensors);
  ++made;
  return next;
}

// Rank 0 knows the loss, and any rank may have been told to stop.
Trainer::Impl::Next Trainer::Impl::next_of(const std::function<bool()>& stops) const {
  // A scale of 1 changes nothing, and smaller ones do not help.
  constexpr int64_t kMostSkips = 10;
  const bool is_hopeless = skipped_in_a_row >= kMostSkips && last.loss_scale.value_or(0) <= 1;
  const bool is_lost = !std::isfinite(last.loss) || (!last.skipped && !std::isfinite(last.grad_norm));
  const Next own = is_lost || is_hopeless ? Next::diverged : stops && stops() ? Next::stops : Next::goes_on;
  return static_cast<Next>(largest(static_cast<int64_t>(own)));
}

// Every process makes the whole batch, so that all of them end the checkpoint here.
void Trainer::Impl::require_in_range(const Batch& batch) {
  const std::string wrong = data.range_problem(batch);
  if (wrong.empty()) return;
  if (checkpoints) warn_of_checkpoint(checkpoints->finish(), "");
  refuse(wrong);
}

void Trainer::Impl::fail_diverged(const Tensors& inputs) {
  if (checkpoints) warn_of_checkpoint(checkpoints->finish(), "");
  const bool in_loss = !std::isfinite(last.loss);
  std::string message = in_loss ? "the loss of step " : "the norm of the gradients of step ";
  message += std::to_string(last.step) + " is " + std::to_string(in_loss ? last.loss : last.grad_norm);
  if (last.skipped) message += ", after " + std::to_string(skipped_in_a_row) + " skipped steps in a row";
  try {
    const auto looking = phase("looking for the first number that is not finite");
    const auto found = first_not_finite(programs.program, *session, session_options, inputs);
    if (found) {
      message += "; the first tensor that is not finite is '" + found->tensor + "', of " + found->made_by + ": " +
                 std::to_string(found->nans) + " NaN and " + std::to_string(found->infinities) + " infinite of " +
                 std::to_string(found->elements) + " elements";
      if (!found->operands.empty()) message += ", made of " + joined_names(found->operands);
    } else if (speaks()) {
      message += "; no operator alone makes such a number: it comes of computing some together, in another order";
    }
  } catch (const Error& error) {
    message += "; looking for the first such tensor failed: " + std::string(error.what());
  }
  largest(0);                 // nobody ends the others before rank 0 knows
  if (!speaks()) largest(0);  // waits until rank 0 has said so, and ends with it
  message += "; lower the learning rate, clip gradients (" + called("clip") + " 1), or fix the data";
  if (checkpoints) message += "; the last checkpoint stays as it is";
  throw Error(ErrorKind::running, "train", message);
}

Trainer::Trainer(const Model& model, TrainingPrograms programs, Batches data, TrainerOptions options)
    : impl_(std::make_unique<Impl>(model, std::move(programs), std::move(data), std::move(options))) {}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

Trainer Trainer::make(const Model& model, const Training& training, Batches data, const Mesh& mesh, const Plan& plan,
                      TrainerOptions options) {
  const Training sized = data.complete(training);
  TrainingSetup setup = setup_of(mesh, plan, options);
  if (options.evaluated) setup.evaluation = options.evaluated->complete(training);
  const TrainingStep step = [&] {
    const auto phase = options.observer ? options.observer->on_phase("differentiating") : nullptr;
    return training_step(model, sized);
  }();
  TrainingPrograms programs = compile_training(model, sized, step, setup);
  return Trainer(model, std::move(programs), std::move(data), std::move(options));
}

StepFigures Trainer::step() {
  unmoved(impl_).step(nullptr);
  Impl& run = unmoved(impl_);
  if (!run.checkpoints) return run.last;
  const std::string wrong = run.checkpoints->poll();
  run.warn_of_checkpoint(wrong);
  if (!wrong.empty()) run.problem = wrong;
  return run.last;
}

double Trainer::evaluate() {
  Impl& run = unmoved(impl_);
  if (!run.evaluation) refuse("there is nothing to evaluate; give batches for evaluations");
  // The loss over all labels of the batches together.
  std::vector<double> sums(run.terms.size()), counts(run.terms.size());
  auto evaluating = run.phase("evaluating");
  int64_t position = 0;
  for (int64_t i = 0; i < run.evaluated_batches; ++i) {
    const Batch batch = run.evaluated->at(position);
    position = batch.next;
    const Tensors outputs = run.evaluation->run(batch.tensors);
    if (!run.speaks()) continue;
    for (size_t t = 0; t < run.terms.size(); ++t) {
      const double counted = number_of(outputs, run.terms[t].counted);
      sums[t] += number_of(outputs, run.terms[t].loss) * counted;
      counts[t] += counted;
    }
  }
  evaluating.reset();
  double loss = 0;
  for (size_t t = 0; t < run.terms.size(); ++t)
    if (counts[t] > 0) loss += run.terms[t].weight * sums[t] / counts[t];
  if (run.observer) run.observer->on_evaluation(run.made, loss);
  return loss;
}

std::string Trainer::save() {
  return unmoved(impl_).save();
}

std::string Trainer::finish() {
  Impl& run = unmoved(impl_);
  if (!run.checkpoints) return "";
  const auto writing = run.phase("writing the checkpoint");
  if (const std::string wrong = run.checkpoints->finish(); !wrong.empty()) run.problem = wrong;
  return run.problem;
}

bool Trainer::train(const TrainingSchedule& schedule) {
  Impl& run = unmoved(impl_);
  const int64_t steps = run.data.steps(schedule.steps);
  const auto evaluates_after = [&](int64_t step) {
    return run.evaluation && (step == steps || (schedule.evaluate_every > 0 && step % schedule.evaluate_every == 0));
  };
  bool stopped = run.made < steps && run.largest(schedule.stops && schedule.stops() ? 1 : 0) > 0;
  // The run that saved the checkpoint may have been killed before it evaluated.
  if (run.made == run.first && run.first > 0 && !stopped && evaluates_after(run.made)) evaluate();
  while (run.made < steps && !stopped) {
    const Impl::Next next = run.step(schedule.stops);
    const bool is_last = run.made == steps;
    stopped = next == Impl::Next::stops && !is_last;
    const bool ends = stopped || is_last;
    if (run.observer) run.observer->after_step(run.made, ends);
    if (ends || (schedule.save_every > 0 && run.made % schedule.save_every == 0))
      run.save();
    else if (run.checkpoints)
      run.warn_of_checkpoint(run.checkpoints->poll());
    if (!stopped && evaluates_after(run.made)) evaluate();
  }
  if (run.checkpoints) run.warn_of_checkpoint(finish(), "");
  return !stopped;
}

int64_t Trainer::steps_made() const {
  return unmoved(impl_).made;
}
int64_t Trainer::first_step() const {
  return unmoved(impl_).first;
}
int64_t Trainer::skipped() const {
  return unmoved(impl_).skipped;
}
std::optional<int64_t> Trainer::saved_step() const {
  return unmoved(impl_).checkpoints ? unmoved(impl_).checkpoints->saved() : std::nullopt;
}
const std::string& Trainer::checkpoint_problem() const {
  return unmoved(impl_).problem;
}
const std::vector<int64_t>& Trainer::peak_bytes() const {
  return unmoved(impl_).peaks;
}
int64_t Trainer::process_bytes() const {
  return unmoved(impl_).process_bytes;
}
const TrainingPrograms& Trainer::programs() const {
  return unmoved(impl_).programs;
}
Session& Trainer::session() {
  return *unmoved(impl_).session;
}

}  // namespace v1
}  // namespace tessera
