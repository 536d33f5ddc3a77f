// Measures what each phase of planning a training step takes, for models of different depth side by side:
//   for n in 16 126; do examples/train_tiny/llama.sh $n 16384 128 128256 > llama-$n.onnxtxt; done
//   bench_planning_time llama-16.onnxtxt llama-126.onnxtxt [--mesh dp=2048,tp=8] [--batch 2048] [--sequence 8192]
// All layers of these models are alike, so planning 126 should take little more than planning 16. Prints seconds of the
// process's CPU time, which other processes disturb less than the time of day, and its peak memory so far.
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/tessera.h"
#include "tessera/time.h"
#include "tessera/trainer.h"
#include "tessera/training.h"

namespace {

using namespace tessera;

struct Settings {
  std::vector<std::string> models;
  std::string mesh = "dp=2048,tp=8", machine = "h100-sxm";
  int64_t batch = 2048, sequence = 8192;
};

/// CPU seconds by phase, in the order in which phases were first seen.
class Phases {
 public:
  void begin(size_t model) {
    model_ = model;
    last_ = std::clock();
  }
  /// What ran since the last call was this phase.
  void end(const std::string& phase) {
    const std::clock_t now = std::clock();
    if (!rows_.contains(phase)) order_.push_back(phase);
    std::vector<double>& seconds = rows_[phase];
    seconds.resize(std::max(seconds.size(), model_ + 1));
    seconds[model_] += static_cast<double>(now - last_) / CLOCKS_PER_SEC;
    last_ = std::clock();
  }
  void print(size_t models) const {
    std::vector<double> sums(models);
    for (const std::string& phase : order_) {
      std::printf("%-24s", phase.c_str());
      for (size_t m = 0; m < models; ++m) {
        const std::vector<double>& row = rows_.at(phase);
        const double seconds = m < row.size() ? row[m] : 0;
        sums[m] += seconds;
        std::printf(" %9.3f", seconds);
      }
      std::printf("\n");
    }
    std::printf("%-24s", "all");
    for (const double sum : sums) std::printf(" %9.3f", sum);
    std::printf("\n");
  }

 private:
  size_t model_ = 0;
  std::clock_t last_ = 0;
  std::vector<std::string> order_;
  std::map<std::string, std::vector<double>> rows_;
};

double peak_mb() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_maxrss) / 1e3;
}

/// The phase to which a stage of compilation belongs: rewriting is one phase.
std::string phase_of(std::string_view stage) {
  bool rewrites = true;
  for (const std::string& known : stages()) {
    if (known == "propagate") rewrites = false;
    if (known == stage) break;
  }
  if (rewrites) return "rewrite";
  return stage == "propagate" ? "layouts and decisions" : std::string(stage);
}

void plan(const Settings& settings, const std::string& path, Phases& phases) {
  const Model model = Model::load(path);
  phases.end("read");
  Training training;
  training.clip = 1;
  training.compute = DType::bfloat16;
  const TrainingStep step = training_step(model, training);
  phases.end("training step");
  TrainingSetup setup;
  setup.mesh = Mesh::parse(settings.mesh);
  setup.plan.presets = "fsdp+megatron+sequence";
  setup.plan.recompute = "selective";
  setup.plan.shapes = {{"batch", settings.batch}, {"sequence", settings.sequence}};
  setup.compile.observe = [&](std::string_view stage, const auto&) { phases.end(phase_of(stage)); };
  PredictSettings predicted{.machine = load_machine(settings.machine)};
  setup.compile.topology = predicted.links(setup.mesh);
  {
    const TrainingPrograms programs = compile_training(model, training, step, setup);
    phases.end("rest of compiling");
    programs.program.process_bytes();
    phases.end("bind");
    predict(programs.program, predicted);
    phases.end("simulate");
  }
  phases.end("free");
}

Settings read(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const char* value = argument.starts_with("--") && i + 1 < argc ? argv[++i] : nullptr;
    if (!value)
      settings.models.emplace_back(argument);
    else if (argument == "--mesh")
      settings.mesh = value;
    else if (argument == "--machine")
      settings.machine = value;
    else if (argument == "--batch")
      settings.batch = std::atoll(value);
    else if (argument == "--sequence")
      settings.sequence = std::atoll(value);
  }
  return settings;
}

}  // namespace

int main(int argc, char** argv) try {
  const Settings settings = read(argc, argv);
  if (settings.models.empty()) {
    std::fprintf(stderr,
                 "usage: bench_planning_time MODEL... [--mesh M] [--batch N] [--sequence N] [--machine NAME]\n");
    return 2;
  }
  Phases phases;
  std::vector<double> peaks;
  for (size_t m = 0; m < settings.models.size(); ++m) {
    phases.begin(m);
    plan(settings, settings.models[m], phases);
    peaks.push_back(peak_mb());
  }
  phases.print(settings.models.size());
  std::printf("%-24s", "peak MB so far");
  for (const double peak : peaks) std::printf(" %9.0f", peak);
  std::printf("\n");
  return 0;
} catch (const tessera::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.kind());
}
