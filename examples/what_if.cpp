// Says how much faster a recorded run would be if one kind of operator were:
//   what_if TRACE OPERATOR FACTOR, of a trace that tessera bench --profile wrote
#include "tessera/what_if.h"

#include <cstdio>
#include <cstdlib>

#include "tessera/error.h"

int main(int argc, char** argv) try {
  if (argc != 4) {
    std::fprintf(stderr, "usage: what_if TRACE OPERATOR FACTOR, as trace.json MatMul 0.5\n");
    return 2;
  }
  const tessera::RunTrace trace = tessera::RunTrace::read(argv[1]);
  tessera::WhatIfChanges changes;
  changes.scale_operators = {{argv[2], std::atof(argv[3])}};
  const tessera::WhatIf answer = tessera::what_if(trace, changes);
  std::printf("%s takes %.3f ms, and would take %.3f ms\n", argv[1], answer.measured_ms, answer.step_ms);
  changes = {};
  changes.overlap = tessera::WhatIfChanges::Overlap::perfect;
  std::printf("with perfect overlap instead, %.3f ms\n", tessera::what_if(trace, changes).step_ms);
  return 0;
} catch (const tessera::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.kind());
}
