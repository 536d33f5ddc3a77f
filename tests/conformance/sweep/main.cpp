// node_test_sweep FOLDER…: the outcome of each of ONNX's backend tests, alone and sharded, one line each.
#include <fmt/core.h>

#include <cstdio>

#include "conformance/run_case.h"

int main(int argc, char** argv) {
  using namespace tessera::conformance;
  for (int i = 1; i < argc; ++i) {
    std::filesystem::path folder = argv[i];
    Outcome outcome = run_alone(folder);
    fmt::print("{}\t{}\t{}\n", folder.filename().string(), name_of(outcome.verdict), outcome.message);
    std::fflush(stdout);
    if (outcome.verdict != Verdict::pass) continue;
    for (const std::string& problem : run_sharded(folder, {"x=2", "x=3"}))
      fmt::print("{}\tsharded\t{}\n", folder.filename().string(), problem);
    std::fflush(stdout);
  }
}
