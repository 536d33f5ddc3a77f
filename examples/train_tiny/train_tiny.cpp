// Trains a language model on a text, on any mesh, as run.sh does with the command line:
//   train_tiny model.onnxtxt TEXT [MESH] [STEPS] [METRICS]
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "tessera/batches.h"
#include "tessera/rules.h"
#include "tessera/trainer.h"

namespace {

/// Prints each step, and writes it to a file.
class Printed : public tessera::TrainingObserver {
 public:
  explicit Printed(const std::string& metrics) : log_(metrics, {}) {}

  void on_step(const tessera::StepFigures& figures) override {
    std::printf("step %lld  loss %.4f  gradient %.3g  rate %.3g\n", static_cast<long long>(figures.step), figures.loss,
                figures.grad_norm, figures.learning_rate);
    log_.add(figures);
  }
  void on_evaluation(int64_t step, double loss) override {
    std::printf("evaluation after step %lld: loss %.4f\n", static_cast<long long>(step), loss);
  }
  void on_warning(const std::string& what) override { std::fprintf(stderr, "warning: %s\n", what.c_str()); }

 private:
  tessera::TrainingLog log_;
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3) {
    std::fprintf(stderr, "usage: train_tiny model.onnxtxt TEXT [MESH, as dp=2] [STEPS] [METRICS]\n");
    return 2;
  }
  const std::string text = argv[2], mesh = argc > 3 ? argv[3] : "dp=2";
  const int64_t steps = argc > 4 ? std::atoll(argv[4]) : 20;
  Printed printed(argc > 5 ? argv[5] : "");

  const tessera::Model model = tessera::Model::load(argv[1]);
  tessera::Training training;
  training.optimizer = tessera::AdamW{};
  training.learning_rate = tessera::LearningRate{.peak = 2e-3, .warmup = 20, .cosine = 500, .min = 1e-4};

  // Each byte of the text is a token. Evaluations take four batches of its samples, each once.
  tessera::BatchOptions samples;
  samples.batch = 8;
  samples.sequence = 128;
  tessera::Batches data = tessera::Batches::open(text, model, training, samples);
  samples.evaluates = true;

  tessera::TrainerOptions options;
  options.observer = &printed;
  options.evaluated = tessera::Batches::open(text, model, training, samples);
  options.evaluated_batches = 4;
  tessera::Trainer trainer =
      tessera::Trainer::make(model, training, std::move(data), tessera::Mesh::parse(mesh), {}, std::move(options));
  trainer.train({.steps = steps});
  return 0;
} catch (const tessera::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.kind());
}
