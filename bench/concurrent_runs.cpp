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

struct Kind {
  const char* name;
  int concurrent_runs, threads_per_rank;
};
constexpr Kind kKinds[] = {{"1 thread", 1, 1}, {"1 thread, two runs at once", 2, 1}, {"all threads", 1, 0}};
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

  // One session of each kind: idle teams of other sessions would change how threads wait.
  std::vector<Session> sessions;
  for (const Kind& kind : kKinds) {
    sessions.emplace_back(
        program, SessionOptions{.threads_per_rank = kind.threads_per_rank, .concurrent_runs = kind.concurrent_runs});
    sessions.back().run(inputs);
  }
  std::vector<double> rates[std::size(kKinds)][2];
  for (int turn = 0; turn < kTurns; ++turn)
    for (size_t kind = 0; kind < std::size(kKinds); ++kind)
      for (int callers : {1, 2})
        rates[kind][callers - 1].push_back(runs_per_second(sessions[kind], inputs, callers, seconds));
  double first = 0;
  for (size_t kind = 0; kind < std::size(kKinds); ++kind)
    for (int callers : {1, 2}) {
      std::vector<double>& all = rates[kind][callers - 1];
      std::nth_element(all.begin(), all.begin() + kTurns / 2, all.end());
      const double rate = all[kTurns / 2];
      if (first == 0) first = rate;
      std::printf("%s, %-28s %10.1f runs/s %6.2f\n", callers == 1 ? "1 caller" : "2 callers", kKinds[kind].name, rate,
                  rate / first);
    }
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.kind());
}
