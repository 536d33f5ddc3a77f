#include "tessera/cli/training_figures.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <thread>

#include "tessera/cli/options.h"
#include "tessera/cli/program_tables.h"
#include "tessera/cli/selection_report.h"
#include "tessera/profile.h"

namespace tessera::cli {
namespace {

// The columns of standard error, less one for the cursor.
size_t columns_of_terminal() {
  constexpr size_t kUsual = 80;
  winsize size{};
  const bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return (is_known ? size.ws_col : kUsual) - 1;
}

}  // namespace

Speed Speed::measured(const Console& console, const Program& program, DType dtype) {
  Speed speed;
  for (int64_t rank = 0; rank < program.mesh().size(); ++rank)
    speed.flops_ += static_cast<double>(program.figures(rank).flops);
  const auto& connection = console.connection;
  const bool measures = !connection || connection->launch().local_rank == 0;
  constexpr double kUnit = 1e6;  // processes exchange integers
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const auto own = measures ? static_cast<int64_t>(measure_peak(dtype, cores).flops / kUnit) : 0;
  const std::vector<int64_t> machines = connection ? connection->from_all(own) : std::vector<int64_t>{own};
  for (int64_t machine : machines) speed.peak_ += static_cast<double>(machine) * kUnit;
  return speed;
}

StepLines::StepLines(const Console& console, int64_t first, int64_t steps, int64_t peak_bytes)
    : console_(console),
      first_(first),
      steps_(steps),
      peak_bytes_(peak_bytes),
      is_live_(!console.quiet && console.speaks() && isatty(STDERR_FILENO)),
      logs_(!is_live_ || !isatty(STDOUT_FILENO)) {}

void StepLines::show(const StepFigures& figures, double utilization) {
  constexpr double kWeight = 0.1;  // of the last step in the usual time
  usual_seconds_ =
      usual_seconds_ == 0 ? figures.seconds : usual_seconds_ + kWeight * (figures.seconds - usual_seconds_);
  const Clock::time_point now = Clock::now();
  const auto is_due = [&](std::optional<Clock::time_point>& last, Clock::duration wait) {
    if (last && now - *last < wait) return false;
    last = now;
    return true;
  };
  constexpr int64_t kFirst = 20;
  const bool is_last = figures.step == steps_;
  const bool is_early = logs_ && figures.step - first_ <= kFirst;
  if (is_last || is_early || (logs_ && is_due(logged_, std::chrono::seconds(10)))) {
    logged_ = now;
    clear();
    console_.note(line_of(figures, utilization));
    std::fflush(stdout);  // a log is read while the run goes on
  }
  if (!is_live_ || is_last || !is_due(shown_, std::chrono::milliseconds(100))) return;
  std::fprintf(stderr, "\r\033[K%s", line_of(figures, utilization).substr(0, columns_of_terminal()).c_str());
  std::fflush(stderr);
  is_shown_ = true;
}

void StepLines::clear() {
  if (is_shown_) std::fprintf(stderr, "\r\033[K");
  is_shown_ = false;
}

std::string StepLines::line_of(const StepFigures& figures, double utilization) const {
  char text[160];
  std::snprintf(text, sizeof text, "step %lld/%lld  loss %.4f  gradient %.3g  rate %.3g",
                static_cast<long long>(figures.step), static_cast<long long>(steps_), figures.loss, figures.grad_norm,
                figures.learning_rate);
  std::string line = text;
  if (figures.loss_scale) {
    std::snprintf(text, sizeof text, "  scale %g%s", *figures.loss_scale, figures.skipped ? " (skipped)" : "");
    line += text;
  }
  line += "  " + count_text(static_cast<double>(figures.labels) / figures.seconds) + " tokens/s  " +
          time_text(figures.seconds);
  if (utilization > 0) {
    std::snprintf(text, sizeof text, "  MFU %.0f %%", 100 * utilization);
    line += text;
  }
  line += "  " + bytes_text(static_cast<double>(peak_bytes_));
  const int64_t left = steps_ - figures.step;
  if (left > 0) line += "  " + duration_text(usual_seconds_ * static_cast<double>(left)) + " left";
  return line;
}

MemoryClasses::MemoryClasses(const TrainingStep& step, const Program& program, const std::vector<int64_t>& steps,
                             int64_t evaluation_bytes, int64_t ranks_of_process, int64_t process_bytes, int64_t first)
    : process_ranks(ranks_of_process), process_peak(process_bytes), peaks(steps), evaluation(evaluation_bytes) {
  for (int64_t& bytes : peaks) bytes += evaluation;
  std::map<std::string_view, int64_t*> class_of;
  for (const std::string& name : step.parameters) class_of.emplace(name, &parameters);
  for (const std::string& name : step.optimizer) class_of.emplace(name, &optimizer);
  const auto largest = std::max_element(peaks.begin(), peaks.end());
  peak = *largest;
  const int64_t rank = first + (largest - peaks.begin());
  for (const StateInfo& state : program.states_of(rank)) {
    const auto found = class_of.find(state.tensor.name);
    (found == class_of.end() ? other_states : *found->second) += state.bytes;
  }
  const RankFigures figures = program.figures(rank);
  activations = figures.activation_bytes;
  gradients = figures.gradient_bytes;
  checkpoints = figures.copy_bytes;
  buffers = peak - parameters - optimizer - other_states - activations - gradients - checkpoints - evaluation;
}

std::string memory_line(const TrainingStep& step, const Program& program, const MemoryClasses& memory,
                        std::optional<int> threads) {
  const auto text = [](int64_t bytes) { return bytes_text(static_cast<double>(bytes)); };
  const auto if_any = [&](const char* what, int64_t bytes) { return bytes > 0 ? what + text(bytes) : ""; };
  const std::string each = threads ? ", " + counted(*threads, "thread") + " each" : "";
  return "mesh " + mesh_text(program.mesh()) + each + "; " +
         counted(static_cast<int64_t>(step.parameters.size()), "parameter") +
         (step.parameters.size() == 1 ? " trains;" : " train;") + " at its peak a rank needs " + text(memory.peak) +
         ": parameters " + text(memory.parameters) + ", optimizer " + text(memory.optimizer) + ", gradients " +
         text(memory.gradients) + ", activations " + text(memory.activations) +
         if_any(", copies for checkpoints ", memory.checkpoints) + if_any(", evaluation ", memory.evaluation) +
         ", buffers " + text(memory.buffers + memory.other_states) +
         (memory.process_ranks > 1 ? "; a process, with " + std::to_string(memory.process_ranks) + " ranks, needs " +
                                         text(memory.process_peak)
                                   : "");
}

Json plan_json(const std::string& model, const TrainingStep& step, const Program& program,
               const MemoryClasses& memory) {
  return {{"model", model},
          {"mesh", mesh_json(program.mesh())},
          {"parameters", step.parameters},
          {"selection", selection_json(step)},
          {"peak_bytes", memory.peak},
          {"process", {{"ranks", memory.process_ranks}, {"peak_bytes", memory.process_peak}}},
          {"memory_classes",
           {{"parameters", memory.parameters},
            {"optimizer", memory.optimizer},
            {"other_states", memory.other_states},
            {"gradients", memory.gradients},
            {"activations", memory.activations},
            {"checkpoints", memory.checkpoints},
            {"evaluation", memory.evaluation},
            {"buffers", memory.buffers}}},
          {"collectives", collectives_json(program.summary())},
          {"reshards", reshards_json(program.summary().reshards)},
          {"notes", program.summary().notes},
          {"warnings", program.summary().warnings}};
}

}  // namespace tessera::cli
