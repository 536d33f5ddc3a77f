// Splits a model by a plan of its own, says why one tensor has its layout, and writes the program:
//   write_plan MODEL MESH TENSOR FOLDER [PRESET, as megatron]
#include <cstdio>

#include "tessera/error.h"
#include "tessera/explain.h"
#include "tessera/plan.h"
#include "tessera/program.h"
#include "tessera/write.h"

int main(int argc, char** argv) try {
  if (argc < 5) {
    std::fprintf(stderr, "usage: write_plan MODEL MESH TENSOR FOLDER [PRESET, as megatron]\n");
    return 2;
  }
  tessera::Plan plan;
  if (argc > 5) plan.presets = argv[5];
  const tessera::Program program = tessera::compile(tessera::Model::load(argv[1]), tessera::Mesh::parse(argv[2]), plan);

  for (const tessera::Explanation::Place& place : program.explain(argv[3]).places) {
    std::printf("%-40s %s\n", place.where.c_str(), place.layout.c_str());
    for (const tessera::Explanation::Axis& axis : place.axes)
      std::printf("    dimension %d over %s, by %s\n", axis.dim, axis.axis.c_str(), axis.by.c_str());
  }
  for (const tessera::CollectiveSummary& each : program.summary().collectives)
    std::printf("%lld %s, %lld bytes\n", static_cast<long long>(each.count), each.kind.c_str(),
                static_cast<long long>(each.bytes));

  tessera::WriteOptions options;
  options.lower = tessera::Lower::primitives;  // Send, Recv and ONNX's own operators alone
  program.write(argv[4], options);
  return 0;
} catch (const tessera::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.kind());
}
