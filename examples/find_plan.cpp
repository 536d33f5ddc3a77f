// Searches the plan with which a model takes least time on so many devices, and prints it:
//   find_plan MODEL DEVICES [MACHINE]
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tessera/planner.h"

int main(int argc, char** argv) try {
  if (argc < 3) {
    std::fprintf(stderr, "usage: find_plan MODEL DEVICES [MACHINE, as h100-sxm]\n");
    return 2;
  }
  const auto model = tessera::Model::load(argv[1]);
  tessera::PlannerSettings settings;
  settings.devices = std::atoll(argv[2]);
  settings.predict.machine = tessera::load_machine(argc > 3 ? argv[3] : "h100-sxm");
  settings.seconds = 10;

  const tessera::PlannerReport report = tessera::find_plan(model, settings);
  for (const tessera::PlannedOption& option : report.best) {
    std::printf("%8.3f ms, %lld bytes on a rank: %s\n", option.prediction.step_ms,
                static_cast<long long>(option.peak_bytes), option.text.c_str());
    if (!option.decided.empty()) std::printf("             %s\n", option.decided.c_str());
  }
  std::printf("%s\n", report.best.front().plan.to_json().c_str());
  return 0;
} catch (const tessera::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.kind());
}
