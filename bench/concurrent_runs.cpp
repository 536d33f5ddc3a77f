// Measures whether two callers of one session are faster if their runs go on at once:
//   bench_concurrent_runs MODEL [MESH, as tp=2] [SECONDS, 1] [SIZES, as batch=1,sequence=16]
// Prints runs per second of one caller and of two, for concurrent_runs 1 and 2 and one thread per rank, and of two
// callers whose runs take turns with all cores. Each is the median of nine turns, which alternate, so that what else
// the machine does disturbs all of them. On two cores and a mesh of one rank, two runs at once are to reach nearly
// twice the runs of one caller.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tessera/inspect.h"
#include "tessera/tessera.h"

namespace {

using namespace tessera;
using Clock = std::chrono::steady_clock;

struct Case {
  const char* name;
  int concurrent_runs, threads_per_rank, callers;
};
constexpr Case kCases[] = {
    {"1 caller, one run at a time, 1 thread", 1, 1, 1},    {"2 callers, one run at a time, 1 thread", 1, 1, 2},
    {"1 caller, two runs at once, 1 thread", 2, 1, 1},     {"2 callers, two runs at once, 1 thread", 2, 1, 2},
    {"1 caller, one run at a time, all threads", 1, 0, 1}, {"2 callers, one run at a time, all threads", 1, 0, 2},
};
constexpr int kTurns = 9;

// "batch=1,sequence=16"
SymbolSizes sizes_of(const std::string& text) {
  SymbolSizes sizes;
  std::istringstream pairs(text);
  for (std::string pair; std::getline(pairs, pair, ',');)
    if (const size_t equals = pair.find('='); equals != std::string::npos)
      sizes[pair.substr(0, equals)] = std::atoll(pair.c_str() + equals + 1);
  return sizes;
}

double runs_per_second(Session& session, const Tensors& inputs, int callers, double seconds) {
  std::atomic<int64_t> runs = 0;
  const Clock::time_point begin = Clock::now();
  const Clock::time_point end =
      begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  std::vector<std::thread> threads;
  for (int caller = 0; caller < callers; ++caller)
    threads.emplace_back([&] {
      int64_t own = 0;
      for (; Clock::now() < end; ++own) session.run(inputs);
      runs += own;
    });
  for (std::thread& thread : threads) thread.join();
  return static_cast<double>(runs) / std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::fprintf(stderr, "usage: bench_concurrent_runs MODEL [MESH] [SECONDS] [SIZES, as batch=1,sequence=16]\n");
    return 2;
  }
  Plan plan;
  if (argc > 4) plan.shapes = sizes_of(argv[4]);
  const double seconds = (argc > 3 ? std::atof(argv[3]) : 1) / kTurns;
  const Model model = Model::load(argv[1]);
  const Program program = compile(model, argc > 2 ? Mesh::parse(argv[2]) : Mesh(), plan);
  const Tensors inputs = random_inputs(model, plan.shapes, 1);

  std::vector<Session> sessions;
  std::vector<std::vector<double>> rates(std::size(kCases));
  for (const Case& each : kCases) {
    sessions.emplace_back(
        program, SessionOptions{.threads_per_rank = each.threads_per_rank, .concurrent_runs = each.concurrent_runs});
    sessions.back().prepare(inputs);
    sessions.back().run(inputs);
  }
  for (int turn = 0; turn < kTurns; ++turn)
    for (size_t c = 0; c < std::size(kCases); ++c)
      rates[c].push_back(runs_per_second(sessions[c], inputs, kCases[c].callers, seconds));
  double first = 0;
  for (size_t c = 0; c < std::size(kCases); ++c) {
    std::nth_element(rates[c].begin(), rates[c].begin() + kTurns / 2, rates[c].end());
    const double rate = rates[c][kTurns / 2];
    if (c == 0) first = rate;
    std::printf("%-44s %10.1f runs/s %6.2f\n", kCases[c].name, rate, rate / first);
  }
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.kind());
}
