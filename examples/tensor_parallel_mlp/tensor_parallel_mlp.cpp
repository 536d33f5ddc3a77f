// Trains an MLP of two products on one device and over a mesh, and prints for each iteration the output and the
// gradient of the first weight on both. They must be the same: else the program exits with 1.
//   tensor_parallel_mlp mlp.onnxtxt [MESH] [ITERATIONS]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "tessera/compare.h"
#include "tessera/inspect.h"
#include "tessera/training.h"

namespace {

const std::vector<std::string> kWatched = {"y", "grad.fc1.weight"};

// The file has no initial values. Uniform numbers of variance 1 / 128 keep the scale of what goes through.
tessera::Tensors initial_values(const tessera::TrainingStep& step, const tessera::Program& program) {
  tessera::Tensors values;
  uint32_t random = 1;
  for (const tessera::StateInfo& state : program.states()) {
    const std::string& name = state.tensor.name;
    if (std::find(step.parameters.begin(), step.parameters.end(), name) == step.parameters.end()) continue;
    std::vector<float> elements(128 * 128);
    for (float& element : elements) {
      random = random * 1664525U + 1013904223U;
      element = (static_cast<float>(random >> 8) / static_cast<float>(1 << 23) - 1) * std::sqrt(3.0F / 128);
    }
    values.emplace(name, tessera::Tensor::of(tessera::DType::float32, {128, 128}, elements));
  }
  return values;
}

tessera::Session session_on(const tessera::TrainingStep& step, const std::string& mesh) {
  const tessera::Program program = tessera::compile(step.model, tessera::Mesh::parse(mesh));
  for (const tessera::StateInfo& state : program.states())
    if (!state.tensor.shape.empty())
      std::printf("%s stored as %s on %s\n", state.tensor.name.c_str(), state.storage.c_str(),
                  mesh.empty() ? "one device" : mesh.c_str());
  tessera::Session session(program);
  session.set_states(initial_values(step, program));
  return session;
}

void print(int iteration, const std::string& where, const tessera::Tensors& outputs) {
  std::printf("%9d  %-10s  %8.6f", iteration, where.c_str(), outputs.at("loss").as<float>()[0]);
  for (const std::string& name : kWatched) {
    const auto elements = outputs.at(name).as<float>();
    std::printf("  %9.6f %9.6f %9.6f", elements[0], elements[1], elements[elements.size() - 1]);
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::fprintf(stderr, "usage: tensor_parallel_mlp mlp.onnxtxt [MESH, as tp=2] [ITERATIONS]\n");
    return 2;
  }
  const std::string mesh = argc > 2 ? argv[2] : "tp=2";
  const int iterations = argc > 3 ? std::atoi(argv[3]) : 5;

  tessera::Training training;
  training.loss = "mse";
  training.optimizer = "sgd";
  training.learning_rate = "1";
  training.sizes = {{"batch", 16}};
  tessera::TrainingStep step = tessera::training_step(tessera::Model::load(argv[1]), training);
  step.model = step.model.with_outputs({"loss", kWatched[0], kWatched[1]});

  tessera::Session one = session_on(step, ""), many = session_on(step, mesh);
  std::printf("iteration  on             loss  output y: first, second, last  gradient of fc1.weight: likewise\n");
  bool good = true;
  for (int i = 1; i <= iterations; ++i) {
    const tessera::Tensors batch = tessera::random_inputs(step.model, {}, 1);
    const tessera::Tensors expected = one.run(batch), actual = many.run(batch);
    print(i, "one device", expected);
    print(i, mesh, actual);
    for (const tessera::Difference& difference : tessera::compare(expected, actual, {1e-6, 1e-5})) {
      if (difference.pass) continue;
      std::printf("%s differs by %g\n", difference.name.c_str(), difference.max_abs);
      good = false;
    }
  }
  std::printf(good ? "loss, output and gradient are the same in all iterations\n" : "the two differ\n");
  return good ? 0 : 1;
} catch (const tessera::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.kind());
}
