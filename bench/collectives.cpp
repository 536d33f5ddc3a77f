// Times collectives between threads beside MPI's between processes, and the copying that they cannot do without:
//   bench_collectives RANKS [FILE]      FILE: what collectives_mpi printed, for the same number of ranks
//
// The floor is the time in which the machine's cores copy what all ranks receive. A ratio above 1 says that threads are
// faster than MPI.
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tessera/comm/communicator.h"

namespace {

using namespace tessera;
using Clock = std::chrono::steady_clock;

constexpr size_t kSizes[] = {size_t{1} << 10, size_t{1} << 20, size_t{64} << 20};
constexpr comm::Kind kKinds[] = {comm::Kind::all_reduce, comm::Kind::all_gather, comm::Kind::reduce_scatter,
                                 comm::Kind::all_to_all, comm::Kind::broadcast};

int runs_of(size_t bytes) {
  return bytes <= 1024 ? 2000 : bytes <= (size_t{1} << 20) ? 200 : 10;
}

int cores() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// Keeps the calling thread on one core: a busy machine may leave two on the same one.
void hold_core(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

// The median of the slowest rank's microseconds; `body` is what a rank does in a run.
double median_of_slowest(int ranks, int runs, const std::function<void(int rank)>& body) {
  std::vector<std::vector<double>> times(ranks, std::vector<double>(runs));
  std::atomic<int64_t> come = 0;
  const bool yields = ranks > cores();
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      if (!yields) hold_core(r);
      for (int i = -3; i < runs; ++i) {
        const int64_t all = (i + 4) * int64_t{ranks};  // all ranks begin at once, without sleeping
        int looks = 0;
        for (++come; come < all;)
          if (yields || ++looks > 10'000) std::this_thread::yield();  // on a busy machine the others may have no core
        const Clock::time_point start = Clock::now();
        body(r);
        if (i >= 0) times[r][i] = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
      }
    });
  for (std::thread& thread : threads) thread.join();
  std::vector<double> slowest(runs);
  for (int i = 0; i < runs; ++i)
    for (int r = 0; r < ranks; ++r) slowest[i] = std::max(slowest[i], times[r][i]);
  std::nth_element(slowest.begin(), slowest.begin() + runs / 2, slowest.end());
  return slowest[runs / 2];
}

double collective(int ranks, comm::Kind kind, size_t bytes) {
  const auto count = static_cast<int64_t>(bytes / sizeof(float));
  comm::WorldOptions options;
  options.spin = ranks <= cores();
  const auto world = comm::make_local_world(ranks, options);
  std::vector<int> members(ranks);
  std::iota(members.begin(), members.end(), 0);
  const std::vector<int64_t> shares(ranks, count / ranks);
  std::vector<std::vector<float>> in(ranks, std::vector<float>(count)), out = in;
  std::vector<std::unique_ptr<comm::Communicator>> communicators;
  for (int r = 0; r < ranks; ++r) communicators.push_back(world->join(r, members));
  return median_of_slowest(ranks, runs_of(bytes), [&](int r) {
    comm::Operation operation;
    operation.kind = kind;
    operation.in = kind == comm::Kind::broadcast ? out[r].data() : in[r].data();  // MPI's is in place too
    operation.out = out[r].data();
    operation.count = count;
    const bool blocked = kind != comm::Kind::all_reduce && kind != comm::Kind::broadcast;
    if (blocked) operation.counts = operation.recv_counts = shares;
    communicators[r]->run(operation);
  });
}

// Copying, by all cores, of what all ranks receive.
double floor_of(int ranks, comm::Kind kind, size_t bytes) {
  const size_t each = kind == comm::Kind::reduce_scatter ? bytes / ranks : bytes;
  const size_t share = each * (kind == comm::Kind::broadcast ? ranks - 1 : ranks) / cores();
  std::vector<std::vector<char>> from(cores(), std::vector<char>(share, 1)), to = from;
  return median_of_slowest(cores(), runs_of(bytes), [&](int c) { std::memcpy(to[c].data(), from[c].data(), share); });
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 0;
  if (ranks < 1 || ranks > 64) {
    std::fprintf(stderr, "usage: bench_collectives RANKS [FILE of collectives_mpi's lines]\n");
    return 2;
  }
  std::map<std::pair<std::string, size_t>, double> peers;
  if (argc > 2) {
    std::ifstream file(argv[2]);
    std::string kind;
    size_t bytes = 0;
    double time = 0;
    while (file >> kind >> bytes >> time) peers[{kind, bytes}] = time;
  }
  std::printf("%d ranks\n%-16s %10s %12s %12s %12s %8s\n", ranks, "collective", "bytes", "us", "floor us", "MPI us",
              "ratio");
  for (comm::Kind kind : kKinds)
    for (size_t bytes : kSizes) {
      const double ours = collective(ranks, kind, bytes), floor = floor_of(ranks, kind, bytes);
      std::printf("%-16s %10zu %12.2f %12.2f", std::string(name_of(kind)).c_str(), bytes, ours, floor);
      const auto peer = peers.find({std::string(name_of(kind)), bytes});
      if (peer != peers.end()) std::printf(" %12.2f %8.2f", peer->second, peer->second / ours);
      std::printf("\n");
    }
}
