#include "tessera/cli/training_report.h"

#include <unistd.h>

#include <algorithm>

#include "tessera/cli/progress.h"

namespace tessera::cli {

void ProfiledSteps::add(const Console& console, const Session& session, bool is_last) {
  constexpr int kBefore = 3, kTraced = 5;
  if ((path_.empty() && !kept_) || done_) return;
  ++seen_;
  if (seen_ > kBefore || is_last) {
    const Profile profile = session.profile();
    trace_.add(profile, at_);
    overlap_.measure(profile);
    at_ += profile.duration;
  }
  if (seen_ < kBefore + kTraced && !is_last) return;
  done_ = true;
  if (!console.speaks() || path_.empty()) return;
  trace_.write(path_);
  console.note("wrote " + path_);
}

void TrainingReport::begin(Trainer& trainer, const MemoryClasses& memory, int64_t steps) {
  trainer_ = &trainer;
  memory_ = &memory;
  const int64_t first = trainer.first_step();
  if (console_.speaks()) files_.emplace(options_.metrics, options_.tensorboard, first, options_.resume);
  const bool is_watched = !console_.quiet && isatty(STDERR_FILENO);
  const bool is_noted = is_watched || !options_.metrics.empty() || !options_.tensorboard.empty();
  const int64_t own = is_noted && first < steps ? 1 : 0;
  const std::vector<int64_t> all = console_.connection ? console_.connection->from_all(own) : std::vector<int64_t>{own};
  if (*std::max_element(all.begin(), all.end()) > 0) {
    const Progress progress(console_, "measuring the machine");
    const TrainingPrograms& programs = trainer.programs();
    speed_ = Speed::measured(console_, programs.program, programs.training.compute);
  }
  lines_ = std::make_unique<StepLines>(console_, first, steps, memory.peak);
}

void TrainingReport::on_step(const StepFigures& figures) {
  const double utilization = speed_.utilization(figures.seconds);
  all_.push_back(figures);
  if (files_) files_->add(figures, utilization, memory_->peak);
  warn_of_files();
  lines_->show(figures, utilization);
}

void TrainingReport::after_step(int64_t, bool ends) {
  profiled_.add(console_, trainer_->session(), ends);
}

void TrainingReport::on_evaluation(int64_t step, double loss) {
  char text[80];
  std::snprintf(text, sizeof text, "evaluation after step %lld: loss %.4f", static_cast<long long>(step), loss);
  lines_->clear();
  console_.note(text);
  if (files_) files_->add_evaluation(step, loss);
  warn_of_files();
  evaluations_.emplace_back(step, loss);
}

void TrainingReport::warn_of_files() {
  if (!files_) return;
  if (const std::string what = files_->problem(); !what.empty())
    console_.warn(what + " cannot be written any more; is the disk full? Training goes on");
}

void TrainingReport::on_warning(const std::string& what) {
  if (lines_) lines_->clear();
  console_.warn(what);
}

std::shared_ptr<void> TrainingReport::on_phase(const std::string& what) {
  return std::make_shared<Progress>(console_, what);
}

double TrainingReport::median_seconds() const {
  std::vector<double> seconds;
  for (const StepFigures& figures : all_) seconds.push_back(figures.seconds);
  std::sort(seconds.begin(), seconds.end());
  return seconds.empty() ? 0 : seconds[seconds.size() / 2];
}

void TrainingReport::add_to(Json& object) const {
  Json losses = Json::array(), norms = Json::array(), ranks = Json::array();
  double best = 0;
  bool is_dynamic = false;
  for (const StepFigures& figures : all_) {
    losses.push_back(figures.loss);
    norms.push_back(figures.grad_norm);
    best = best == 0 ? figures.seconds : std::min(best, figures.seconds);
  }
  const TrainingPrograms& programs = trainer_->programs();
  for (const TensorInfo& output : programs.step.model.outputs()) is_dynamic = is_dynamic || output.name == "loss_scale";
  const SymbolSizes& sizes = programs.program.summary().shapes;
  for (size_t r = 0; r < memory_->peaks.size(); ++r)
    ranks.push_back(
        {{"rank", r},
         {"peak_bytes", memory_->peaks[r]},
         {"planned_bytes", programs.program.peak_bytes(static_cast<int64_t>(r), sizes) + memory_->evaluation}});
  object.update({{"threads_per_rank", trainer_->session().threads_per_rank()},
                 {"steps", all_.size()},
                 {"seconds", best},
                 {"losses", losses},
                 {"grad_norms", norms},
                 {"ranks", ranks}});
  if (is_dynamic) object["skipped"] = trainer_->skipped();
  for (const StepFigures& figures : all_)
    for (const auto& [label, value] : figures.terms) object["terms"][label].push_back(value);
  if (trainer_->first_step() > 0) object["resumed_at"] = trainer_->first_step();
  for (const auto& [at, loss] : evaluations_) object["evaluations"].push_back({{"step", at}, {"loss", loss}});
}

}  // namespace tessera::cli
