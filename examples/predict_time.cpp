// Predicts the time of a run on a cluster that need not be there: predict_time MODEL MESH CLUSTER, as h100-sxm
#include <cstdio>

#include "tessera/error.h"
#include "tessera/time.h"

int main(int argc, char** argv) try {
  if (argc != 4) {
    std::fprintf(stderr, "usage: predict_time MODEL MESH CLUSTER\n");
    return 2;
  }
  const tessera::Program program =
      tessera::compile(tessera::Model::load(argv[1]), tessera::Mesh::parse(argv[2]), {}, {});
  tessera::PredictSettings settings;
  settings.machine = tessera::load_machine(argv[3]);
  const tessera::Prediction predicted = tessera::predict(program, settings);
  std::printf("%.3f ms a run on %s; no order of the same operators beats %.3f ms (%s)\n", predicted.step_ms,
              settings.machine.name.c_str(), predicted.bound_ms, predicted.bound.c_str());
  for (const tessera::ChainPart& part : predicted.chain)
    std::printf("%-30s %4lld %8.3f ms\n", part.op.c_str(), static_cast<long long>(part.count), part.ms);
  return 0;
} catch (const tessera::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.kind());
}
