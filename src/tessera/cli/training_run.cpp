#include "tessera/cli/training_run.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <map>
#include <set>
#include <tuple>

#include "tessera/cli/interrupt.h"
#include "tessera/cli/options.h"
#include "tessera/cli/progress.h"
#include "tessera/cli/trace.h"
#include "tessera/io/safetensors.h"

namespace tessera::cli {
namespace {

double number_of(const Tensors& outputs, const std::string& name) {
  return static_cast<double>(outputs.at(name).as<float>()[0]);
}

/// A trace of a few early steps.
class ProfiledSteps {
 public:
  explicit ProfiledSteps(std::string path) : path_(std::move(path)) {}

  /// After each step; every rank calls it.
  void add(const Console& console, const Session& session, bool is_last) {
    constexpr int kBefore = 3, kTraced = 5;
    if (path_.empty() || done_) return;
    ++seen_;
    if (seen_ > kBefore || is_last) {
      const Profile profile = session.profile();
      trace_.add(profile, at_);
      at_ += profile.duration;
    }
    if (seen_ < kBefore + kTraced && !is_last) return;
    done_ = true;
    if (!console.speaks()) return;
    trace_.write(path_);
    console.note("wrote " + path_);
  }

 private:
  std::string path_;
  Trace trace_;
  double at_ = 0;
  int seen_ = 0;
  bool done_ = false;
};

}  // namespace

StopSignal::StopSignal(Of whom) {
  take_signals([this, whom](int signal) {
    if ((signal != SIGTERM && signal != SIGUSR1) || (whom == Of::spawned_ranks && !signal_spawned(signal)))
      return false;
    asked_ = true;
    return true;
  });
}

StopSignal::~StopSignal() {
  take_signals(nullptr);
}

std::unique_ptr<Checkpoints> open_checkpoints(const Console& console, const TrainOptions& options) {
  if (options.checkpoints.empty()) return nullptr;
  auto checkpoints = std::make_unique<Checkpoints>(options.checkpoints, options.keep, console.connection);
  if (const std::string why = checkpoints->lock_problem(); !why.empty()) console.warn(why);
  if (console.speaks() && !options.resume)
    if (const std::vector<int64_t> there = Checkpoints::steps(options.checkpoints); !there.empty())
      wrong_training(options.checkpoints + " has checkpoints of another run, the last one of step " +
                     std::to_string(there.back()) + "; give --resume to go on from it, or another folder");
  return checkpoints;
}

TrainingRun::TrainingRun(Parts parts) : parts_(std::move(parts)), terms_(loss_terms(parts_.training.loss)) {
  const std::vector<TensorInfo> outputs = parts_.step.model.outputs();
  is_dynamic_ =
      std::any_of(outputs.begin(), outputs.end(), [](const TensorInfo& output) { return output.name == "loss_scale"; });
}

void TrainingRun::begin() {
  const TrainOptions& options = parts_.options;
  if (options.resume) resume();
  made_ = first_;
  files_ = std::make_unique<FigureFiles>(parts_.console, options, first_);
  const bool is_watched = !parts_.console.quiet && isatty(STDERR_FILENO);
  const bool is_noted = is_watched || !options.metrics.empty() || !options.tensorboard.empty();
  if (largest(is_noted && made_ < parts_.steps ? 1 : 0) > 0)
    speed_ = [&] {
      const Progress progress(parts_.console, "measuring the machine");
      return Speed::measured(parts_.console, parts_.program, parts_.training.compute);
    }();
  lines_ = std::make_unique<StepLines>(parts_.console, first_, parts_.steps, parts_.memory.peak);
}

// Rank 0 chooses, since folders may look different to others: files arrive late on a file system that is shared.
void TrainingRun::resume() {
  const Console& console = parts_.console;
  const TrainOptions& options = parts_.options;
  std::optional<int64_t> latest;
  if (console.speaks()) {
    std::vector<std::string> passed_over;
    if (const auto found = Checkpoints::latest(options.checkpoints, &passed_over))
      latest = Checkpoints::facts(*found).step;
    for (const std::string& why : passed_over) console.warn(why);
  }
  constexpr int64_t kNone = -1;
  const int64_t step =
      console.connection ? console.connection->from_first(latest.value_or(kNone)) : latest.value_or(kNone);
  if (step == kNone) {
    console.note("there is no checkpoint in " + options.checkpoints + " yet; training begins at step 0");
    return;
  }
  const std::string path = Checkpoints::at(options.checkpoints, step).string();
  if (step > parts_.steps)
    wrong_training(path + " has made more than the " + std::to_string(parts_.steps) +
                   " steps of this run; give a larger --steps, or another folder");
  compare_optimizer(path);
  const CheckpointFacts facts = [&] {
    const Progress progress(console, "reading " + path);
    return Checkpoints::load(parts_.session, path);
  }();
  if (console.connection) console.connection->require_same(path, facts.run);
  first_ = facts.step;
  if (const auto cursor = facts.numbers.find("cursor"); cursor != facts.numbers.end()) parts_.data.seek(cursor->second);
  compare_data(facts, path);
  warn_of(parts_.checkpoints->tidy(step));
  console.note(step < parts_.steps ? "goes on from " + path
                                   : path + " has made all " + std::to_string(parts_.steps) +
                                         " steps; what is still to be written follows");
}

// The same parameters, beside which another optimizer keeps other states. Whatever else differs, loading tells.
void TrainingRun::compare_optimizer(const std::string& checkpoint) const {
  const std::vector<std::string> tensors = Checkpoints::tensors(checkpoint);
  const std::set<std::string> saved(tensors.begin(), tensors.end());
  const TrainingStep& step = parts_.step;
  const auto is_saved = [&](const std::string& name) { return saved.contains(name); };
  if (!std::all_of(step.parameters.begin(), step.parameters.end(), is_saved)) return;
  const auto missing = std::find_if_not(step.optimizer.begin(), step.optimizer.end(), is_saved);
  std::set<std::string> known;
  for (const auto* names : {&step.parameters, &step.optimizer, &step.statistics})
    known.insert(names->begin(), names->end());
  const auto other = std::find_if(saved.begin(), saved.end(), [&](const std::string& name) {
    return !known.contains(name) && std::any_of(step.parameters.begin(), step.parameters.end(),
                                                [&](const auto& owner) { return name.starts_with(owner + "."); });
  });
  if (missing == step.optimizer.end() && other == saved.end()) return;
  const std::map<std::string, std::string> texts = Checkpoints::facts(checkpoint).texts;
  std::string differences;
  for (const auto& [name, own] : settings_of_states()) {
    const auto found = texts.find(name);
    if (found != texts.end() && found->second != own)
      differences += "--" + name + " is " + own + " and was " + found->second + "; ";
  }
  wrong_training(checkpoint + " was made with another optimizer: " + differences +
                 (missing == step.optimizer.end() ? "" : "it has no '" + *missing + "', which this one keeps; ") +
                 (other == saved.end() ? "" : "it has '" + *other + "', which this one does not keep; ") +
                 "give the same --optimizer and --average, or begin in another folder");
}

std::map<std::string, std::string> TrainingRun::settings_of_states() const {
  char average[32];
  std::snprintf(average, sizeof average, "%g", parts_.training.average);
  return {{"optimizer", parts_.training.optimizer}, {"average", average}};
}

void TrainingRun::compare_data(const CheckpointFacts& facts, const std::string& checkpoint) {
  std::string differences;
  for (const auto& [name, own] : parts_.data.identity()) {
    const auto saved = facts.texts.find(name);
    const std::string was = saved == facts.texts.end() ? "" : saved->second;
    if (was == own) continue;
    const auto shown = [](const std::string& text) { return text.empty() ? "none" : text; };
    differences += (differences.empty() ? "" : "; ") + ("--" + name + " is " + shown(own)) + " and was " + shown(was);
  }
  if (differences.empty()) return;
  if (!parts_.options.other_data)
    wrong_training(checkpoint + " was made with other data: " + differences +
                   "; give the same, or --other-data, which begins these data at their first sample");
  parts_.console.warn("other data than before: " + differences);
  parts_.data.seek(0);
}

StepFigures TrainingRun::make_step(const data::Batch& batch) {
  const Clock::time_point start = Clock::now();
  const Tensors outputs = parts_.session.run(batch.tensors);
  StepFigures figures;
  figures.step = made_ + 1;
  figures.seconds = milliseconds_since(start) * 1e-3;
  figures.tokens_per_second = static_cast<double>(parts_.data.labels_per_step()) / figures.seconds;
  figures.utilization = speed_.utilization(figures.seconds);
  if (!parts_.console.speaks()) return figures;
  figures.loss = number_of(outputs, "loss");
  figures.norm = number_of(outputs, "grad_norm");
  figures.rate = number_of(outputs, "learning_rate");
  if (terms_.size() > 1)
    for (const LossTerm& term : terms_) figures.terms.emplace_back(term.label, number_of(outputs, term.loss));
  if (is_dynamic_) {
    figures.loss_scale = number_of(outputs, "loss_scale");
    figures.skipped = !std::isfinite(figures.norm);
  }
  return figures;
}

bool TrainingRun::evaluates_after(int64_t step) const {
  const int eval_every = parts_.options.eval_every;
  return step == parts_.steps || (eval_every > 0 && step % eval_every == 0);
}

void TrainingRun::train(const StopSignal& stop, const std::optional<Evaluator>& evaluator) {
  const TrainOptions& options = parts_.options;
  ProfiledSteps profiled(options.profile);
  stopped_ = made_ < parts_.steps && largest(stop.asked() ? 1 : 0) > 0;
  // Whoever saved the checkpoint may have been killed before it evaluated.
  if (evaluator && first_ > 0 && !stopped_ && evaluates_after(first_)) evaluate(*evaluator);
  while (made_ < parts_.steps && !stopped_) {
    std::optional<Progress> progress;
    if (made_ == first_) progress.emplace(parts_.console, "first step");
    const data::Batch batch = parts_.data.next();
    require_in_range(batch);
    const StepFigures figures = make_step(batch);
    progress.reset();
    all_.push_back(figures);
    note_skips(figures);
    files_->add(figures, parts_.memory.peak);
    lines_->show(figures);
    const Next next = next_of(figures, stop);
    if (next == Next::diverged) fail_diverged(figures, batch.tensors);
    ++made_;
    const bool is_last = made_ == parts_.steps;
    stopped_ = next == Next::stops && !is_last;
    const bool ends = stopped_ || is_last;
    profiled.add(parts_.console, parts_.session, ends);
    if (ends || (options.save_every && made_ % options.save_every == 0))
      save();
    else if (parts_.checkpoints)
      warn_of(parts_.checkpoints->poll());
    if (evaluator && !stopped_ && evaluates_after(made_)) evaluate(*evaluator);
  }
  if (!options.profile.empty() && made_ == first_) parts_.console.note("no step was left to trace for --profile");
  if (!parts_.checkpoints) return;
  Progress progress(parts_.console, "writing the checkpoint");
  last_problem_ = parts_.checkpoints->finish();
  progress.end();
  warn_of(last_problem_, "");
}

void TrainingRun::note_skips(const StepFigures& figures) {
  skipped_ += figures.skipped;
  skipped_in_a_row_ = figures.skipped ? skipped_in_a_row_ + 1 : 0;
}

// Rank 0 knows the loss, and any rank may have been told to stop.
TrainingRun::Next TrainingRun::next_of(const StepFigures& figures, const StopSignal& stop) {
  // A scale of 1 changes nothing, so that smaller ones are no help.
  constexpr int64_t kMostSkips = 10;
  const bool is_hopeless = skipped_in_a_row_ >= kMostSkips && figures.loss_scale.value_or(0) <= 1;
  const bool is_lost = !std::isfinite(figures.loss) || (!figures.skipped && !std::isfinite(figures.norm));
  const Next own = is_lost || is_hopeless ? Next::diverged : stop.asked() ? Next::stops : Next::goes_on;
  return static_cast<Next>(largest(static_cast<int64_t>(own)));
}

int64_t TrainingRun::largest(int64_t value) const {
  const auto& connection = parts_.console.connection;
  if (!connection) return value;
  const std::vector<int64_t> all = connection->from_all(value);
  return *std::max_element(all.begin(), all.end());
}

// Every process makes the whole batch, so that all of them end the checkpoint here.
void TrainingRun::require_in_range(const data::Batch& batch) {
  const std::string problem = parts_.data.range_problem(batch);
  if (problem.empty()) return;
  lines_->clear();
  if (parts_.checkpoints) warn_of(parts_.checkpoints->finish(), "");
  wrong_training(problem);
}

void TrainingRun::fail_diverged(const StepFigures& figures, const Tensors& inputs) {
  lines_->clear();
  if (parts_.checkpoints) warn_of(parts_.checkpoints->finish(), "");
  const bool in_loss = !std::isfinite(figures.loss);
  std::string message = in_loss ? "the loss of step " : "the norm of the gradients of step ";
  message += std::to_string(figures.step) + " is " + std::to_string(in_loss ? figures.loss : figures.norm);
  if (figures.skipped) message += ", after " + std::to_string(skipped_in_a_row_) + " skipped steps in a row";
  try {
    const Progress progress(parts_.console, "looking for the first number that is not finite");
    const auto found = first_not_finite(parts_.program, parts_.session, parts_.session_options, inputs);
    if (found) {
      message += "; the first tensor that is not finite is '" + found->tensor + "', of " + found->made_by + ": " +
                 std::to_string(found->nans) + " NaN and " + std::to_string(found->infinities) + " infinite of " +
                 std::to_string(found->elements) + " elements";
      if (!found->operands.empty()) message += ", made of " + joined(found->operands, " and ");
    } else if (parts_.console.speaks()) {
      message += "; no operator alone makes such a number: it comes of computing some together, in another order";
    }
  } catch (const Error& error) {
    message += "; looking for the first such tensor failed: " + std::string(error.what());
  }
  largest(0);                                // nobody ends the others before rank 0 knows
  if (!parts_.console.speaks()) largest(0);  // waits until rank 0 has said so, and ends with it
  message += "; lower the learning rate, clip gradients (--clip 1), or fix the data";
  if (parts_.checkpoints) message += "; the last checkpoint stays as it is";
  throw Error(ErrorKind::running, "train", message);
}

void TrainingRun::evaluate(const Evaluator& evaluator) {
  // The loss over all labels of the batches together.
  std::vector<double> sums(terms_.size()), counts(terms_.size());
  Progress progress(parts_.console, "evaluating");
  int64_t cursor = 0;
  for (int64_t i = 0; i < evaluator.batches; ++i) {
    const data::Batch batch = evaluator.data.at(cursor);
    cursor = batch.next;
    const Tensors outputs = evaluator.session->run(batch.tensors);
    if (!parts_.console.speaks()) continue;
    for (size_t t = 0; t < terms_.size(); ++t) {
      const double counted = number_of(outputs, terms_[t].counted);
      sums[t] += number_of(outputs, terms_[t].loss) * counted;
      counts[t] += counted;
    }
  }
  progress.end();
  double loss = 0;
  for (size_t t = 0; t < terms_.size(); ++t)
    if (counts[t] > 0) loss += terms_[t].weight * sums[t] / counts[t];
  char text[80];
  std::snprintf(text, sizeof text, "evaluation after step %lld: loss %.4f", static_cast<long long>(made_), loss);
  lines_->clear();
  parts_.console.note(text);
  files_->add_evaluation(made_, loss);
  evaluations_.emplace_back(made_, loss);
}

void TrainingRun::save() {
  if (!parts_.checkpoints) return;
  CheckpointFacts facts;
  facts.step = made_;
  facts.numbers["cursor"] = parts_.data.cursor();
  facts.texts = parts_.data.identity();
  facts.texts.merge(settings_of_states());
  Progress progress(parts_.console, "saving a checkpoint");
  const std::string problem = parts_.checkpoints->save(parts_.session, facts);
  progress.end();
  warn_of(problem);
}

void TrainingRun::warn_of(const std::string& problem, const char* what_follows) const {
  if (problem.empty()) return;
  if (lines_) lines_->clear();
  parts_.console.warn("the checkpoint: " + problem + what_follows);
}

void TrainingRun::require_saved() const {
  if (!parts_.checkpoints || !parts_.console.speaks() || made_ == first_) return;
  if (parts_.checkpoints->saved() == made_ || (!stopped_ && !parts_.options.save_final.empty())) return;
  throw Error(ErrorKind::running, "train",
              "the states after step " + std::to_string(made_) + " are saved nowhere: " + last_problem_ +
                  "; make room, then run the command again with --resume, which goes on from the last good checkpoint");
}

void TrainingRun::save_results() const {
  const auto& [options, step] = std::tie(parts_.options, parts_.step);
  std::map<std::string, std::string> average_of;  // by the parameter
  if (parts_.training.average > 0)
    for (const std::string& name : step.parameters) average_of.emplace(name, name + ".average");
  std::vector<std::string> wanted = step.parameters;
  for (const auto& [parameter, average] : average_of) wanted.push_back(average);
  wanted.insert(wanted.end(), step.statistics.begin(), step.statistics.end());
  if (options.save_final.empty() && options.save_average.empty()) return;
  const Tensors states = parts_.session.states(wanted);
  if (!parts_.console.speaks()) return;
  Tensors parameters, averages, averaged;
  for (const std::string& name : step.parameters) parameters.emplace(name, states.at(name));
  for (const auto& [parameter, average] : average_of) {
    averages.emplace(average, states.at(average));
    averaged.emplace(parameter, states.at(average));
  }
  for (const std::string& name : step.statistics) {
    parameters.emplace(name, states.at(name));
    averaged.emplace(name, states.at(name));
  }
  step.add_copies(parameters);
  step.add_copies(averaged);
  step.add_copies(averages, ".average");
  if (!options.save_final.empty()) write_parameters(options.save_final, parameters, averages);
  if (!options.save_average.empty()) write_parameters(options.save_average, averaged, {});
}

void TrainingRun::write_parameters(const std::string& path, const Tensors& parameters, const Tensors& others) const {
  Progress progress(parts_.console, "writing " + path);
  Tensors all = parameters;
  all.insert(others.begin(), others.end());
  all.insert(parts_.step.frozen.begin(), parts_.step.frozen.end());
  if (path.ends_with(".onnx"))
    write_trained(parts_.model, parameters, path);
  else if (path.ends_with(".safetensors"))
    save_safetensors(path, {all.begin(), all.end()});
  else
    write_tensors(path, all);
  progress.end();
  parts_.console.note("wrote " + path);
}

void TrainingRun::add_to(Json& object) const {
  Json losses = Json::array(), norms = Json::array(), ranks = Json::array();
  double best = 0;
  for (const StepFigures& figures : all_) {
    losses.push_back(figures.loss);
    norms.push_back(figures.norm);
    best = best == 0 ? figures.seconds : std::min(best, figures.seconds);
  }
  const SymbolSizes& sizes = parts_.program.summary().shapes;
  for (size_t r = 0; r < parts_.memory.peaks.size(); ++r)
    ranks.push_back(
        {{"rank", r},
         {"peak_bytes", parts_.memory.peaks[r]},
         {"planned_bytes", parts_.program.peak_bytes(static_cast<int64_t>(r), sizes) + parts_.memory.evaluation}});
  object.update({{"threads_per_rank", parts_.session.threads_per_rank()},
                 {"steps", all_.size()},
                 {"seconds", best},
                 {"losses", losses},
                 {"grad_norms", norms},
                 {"ranks", ranks}});
  if (is_dynamic_) object["skipped"] = skipped_;
  for (const StepFigures& figures : all_)
    for (const auto& [label, value] : figures.terms) object["terms"][label].push_back(value);
  if (first_ > 0) object["resumed_at"] = first_;
  for (const auto& [at, loss] : evaluations_) object["evaluations"].push_back({{"step", at}, {"loss", loss}});
}

}  // namespace tessera::cli
