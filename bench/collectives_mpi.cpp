// What MPI takes for the collectives that `tessera bench comm` times, by the same protocol:
//   mpirun -n RANKS bench_collectives_mpi LEAST MOST [SECONDS]      bytes of the smallest and largest tensor, ×4
//   between
// A line for each kind and size: "KIND BYTES MICROSECONDS".
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

#include "tessera/comm/batches.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const long least = argc > 2 ? std::atol(argv[1]) : 0, most = argc > 2 ? std::atol(argv[2]) : 0;
  if (least < 4L * ranks || most < least) {
    if (rank == 0) std::fprintf(stderr, "usage: bench_collectives_mpi LEAST MOST [SECONDS]\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  tessera::comm::MeasureOptions options;
  if (argc > 3) options.seconds = std::atof(argv[3]);
  std::vector<float> in(static_cast<size_t>(most) / 4), out = in;
  int count = 0, block = 0;
  const MPI_Comm all = MPI_COMM_WORLD;
  const std::vector<std::pair<const char*, std::function<void()>>> kinds = {
      {"all_reduce", [&] { MPI_Allreduce(in.data(), out.data(), count, MPI_FLOAT, MPI_SUM, all); }},
      {"all_gather", [&] { MPI_Allgather(in.data(), block, MPI_FLOAT, out.data(), block, MPI_FLOAT, all); }},
      {"reduce_scatter", [&] { MPI_Reduce_scatter_block(in.data(), out.data(), block, MPI_FLOAT, MPI_SUM, all); }},
      {"all_to_all", [&] { MPI_Alltoall(in.data(), block, MPI_FLOAT, out.data(), block, MPI_FLOAT, all); }},
      {"broadcast", [&] { MPI_Bcast(out.data(), count, MPI_FLOAT, 0, all); }},
      {"reduce", [&] { MPI_Reduce(in.data(), out.data(), count, MPI_FLOAT, MPI_SUM, 0, all); }},
      {"gather", [&] { MPI_Gather(in.data(), block, MPI_FLOAT, out.data(), block, MPI_FLOAT, 0, all); }},
      {"scatter", [&] { MPI_Scatter(in.data(), block, MPI_FLOAT, out.data(), block, MPI_FLOAT, 0, all); }},
      {"permute",
       [&] {
         MPI_Sendrecv(in.data(), count, MPI_FLOAT, (rank + 1) % ranks, 0, out.data(), count, MPI_FLOAT,
                      (rank + ranks - 1) % ranks, 0, all, MPI_STATUS_IGNORE);
       }},
      {"barrier", [&] { MPI_Barrier(all); }},
  };
  for (const auto& [name, body] : kinds)
    for (long bytes = least; bytes <= most; bytes *= 4) {
      const bool moves = body.target_type() != kinds.back().second.target_type();
      count = static_cast<int>(bytes / 4);
      block = count / ranks;
      const double seconds = tessera::comm::slowest_median(
          options, body, [&] { MPI_Barrier(all); },
          [&](double mine) {
            double most_of_all = 0;
            MPI_Allreduce(&mine, &most_of_all, 1, MPI_DOUBLE, MPI_MAX, all);
            return most_of_all;
          });
      if (rank == 0) std::printf("%s %ld %.3f\n", name, moves ? bytes : 0, seconds * 1e6);
      if (!moves) break;
    }
  MPI_Finalize();
  return 0;
}
