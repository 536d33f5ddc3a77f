// Runs what the simulator predicts on the simulated device in real time: kernels and links that do nothing but take the
// predicted time, enqueued by the runtime. Prints both times of a step for several meshes; ends with 1 if any differ by
// more than 1 %.
//   bench_real_time [MILLISECONDS]     of a kernel, in the mean about; 20 by default
// Sleeping needs no core, but a machine that does much else wakes threads late.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "forecast/paced_run.h"

namespace {

using namespace tessera;

constexpr double kTolerance = 0.01;

bool agrees(const std::string& mesh, const std::string& presets, double kernel) {
  const auto [dry, predicted] = forecast::paced_run(mesh, presets, kernel);
  const double measured = forecast::run(dry, predicted, true), expected = predicted.timeline.seconds;
  const double difference = measured / expected - 1;
  size_t overlapping = 0;
  for (const bind::Enqueued& action : predicted.classes[0].actions) overlapping += action.queue != bind::kComputing;
  std::printf("%-14s %-14s %5zu actions, %3zu beside others  simulated %8.1f ms  real %8.1f ms  %+.2f %%\n",
              mesh.c_str(), presets.c_str(), predicted.classes[0].actions.size(), overlapping, expected * 1e3,
              measured * 1e3, 100 * difference);
  return std::abs(difference) <= kTolerance;
}

}  // namespace

int main(int count, char** words) {
  const double kernel = count > 1 ? std::strtod(words[1], nullptr) * 1e-3 : 20e-3;
  if (count > 2 || !(kernel >= 1e-3)) {
    std::fprintf(stderr, "usage: bench_real_time [MILLISECONDS], of at least 1\n");
    return 2;
  }
  bool good = true;
  for (const auto& [mesh, presets] : std::vector<std::pair<std::string, std::string>>{
           {"tp=1", "none"}, {"tp=2", "megatron"}, {"tp=3", "megatron"}, {"dp=2,tp=2", "dp+megatron"}})
    good = agrees(mesh, presets, kernel) && good;
  return good ? 0 : 1;
}
