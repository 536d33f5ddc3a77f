// Runs what the simulator predicts on the simulated device in real time: kernels and links that do nothing but take the
// predicted time, enqueued by the runtime. Prints both times of a step for several meshes, and for a pair of products
// whose collectives take as long as they do, whole and in rings; ends with 1 if any differ by more than 1 %.
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

// `seconds` receives the real time.
bool agrees(const std::string& name, const forecast::PacedRun& paced, double* seconds = nullptr) {
  const auto& [dry, predicted] = paced;
  const double measured = forecast::run(dry, predicted, true), expected = predicted.timeline.seconds;
  if (seconds) *seconds = measured;
  const double difference = measured / expected - 1;
  size_t overlapping = 0;
  for (const bind::Enqueued& action : predicted.classes[0].actions) overlapping += action.queue != bind::kComputing;
  std::printf("%-29s %5zu actions, %3zu beside others  simulated %8.1f ms  real %8.1f ms  %+.2f %%\n", name.c_str(),
              predicted.classes[0].actions.size(), overlapping, expected * 1e3, measured * 1e3, 100 * difference);
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
    good = agrees(mesh + " " + presets, forecast::paced_run(mesh, presets, kernel)) && good;
  double off = 0, automatic = 0;
  using compiler::ProductRings;
  good = agrees("t=4 pair, --overlap off", forecast::paced_pair(kernel, ProductRings::never), &off) && good;
  good = agrees("t=4 pair, --overlap auto", forecast::paced_pair(kernel, ProductRings::by_cost), &automatic) && good;
  std::printf("an all-gather before a product and a reduce-scatter after one, in rings: %.2f times as fast\n",
              off / automatic);
  return good ? 0 : 1;
}
