// MPI's times for the collectives of `tessera bench comm`, by the same protocol:
//   mpirun -n RANKS bench_collectives_mpi LEAST MOST [SECONDS [nonblocking]]      bytes of the smallest and largest
//   tensor, ×4 between
// Prints a line for each kind and size: "KIND BYTES MICROSECONDS". With `nonblocking`, uses MPI's nonblocking calls,
// each with an immediate wait, because MPI libraries have other algorithms for these.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/comm/batches.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const long least = argc > 2 ? std::atol(argv[1]) : 0, most = argc > 2 ? std::atol(argv[2]) : 0;
  if (least < 4L * ranks || most < least) {
    if (rank == 0) std::fprintf(stderr, "usage: bench_collectives_mpi LEAST MOST [SECONDS [nonblocking]]\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  tessera::comm::TimingOptions options;
  if (argc > 3) options.seconds = std::atof(argv[3]);
  const bool nonblocking = argc > 4 && std::string_view(argv[4]) == "nonblocking";
  std::vector<float> in(static_cast<size_t>(most) / 4), out = in;
  int count = 0, block = 0;
  const MPI_Comm all = MPI_COMM_WORLD;
  MPI_Request request = MPI_REQUEST_NULL;
  const auto wait = [&request] { MPI_Wait(&request, MPI_STATUS_IGNORE); };
  struct Call {
    const char* name;
    std::function<void()> blocking, nonblocking;
  };
  const std::vector<Call> calls = {
      {"all_reduce", [&] { MPI_Allreduce(in.data(), out.data(), count, MPI_FLOAT, MPI_SUM, all); },
       [&] { MPI_Iallreduce(in.data(), out.data(), count, MPI_FLOAT, MPI_SUM, all, &request), wait(); }},
      {"all_gather", [&] { MPI_Allgather(in.data(), block, MPI_FLOAT, out.data(), block, MPI_FLOAT, all); },
       [&] { MPI_Iallgather(in.data(), block, MPI_FLOAT, out.data(), block, MPI_FLOAT, all, &request), wait(); }},
      {"reduce_scatter", [&] { MPI_Reduce_scatter_block(in.data(), out.data(), block, MPI_FLOAT, MPI_SUM, all); },
       [&] { MPI_Ireduce_scatter_block(in.data(), out.data(), block, MPI_FLOAT, MPI_SUM, all, &request), wait(); }},
      {"all_to_all", [&] { MPI_Alltoall(in.data(), block, MPI_FLOAT, out.data(), block, MPI_FLOAT, all); },
       [&] { MPI_Ialltoall(in.data(), block, MPI_FLOAT, out.data(), block, MPI_FLOAT, all, &request), wait(); }},
      {"broadcast", [&] { MPI_Bcast(out.data(), count, MPI_FLOAT, 0, all); },
       [&] { MPI_Ibcast(out.data(), count, MPI_FLOAT, 0, all, &request), wait(); }},
      {"reduce", [&] { MPI_Reduce(in.data(), out.data(), count, MPI_FLOAT, MPI_SUM, 0, all); },
       [&] { MPI_Ireduce(in.data(), out.data(), count, MPI_FLOAT, MPI_SUM, 0, all, &request), wait(); }},
      {"gather", [&] { MPI_Gather(in.data(), block, MPI_FLOAT, out.data(), block, MPI_FLOAT, 0, all); },
       [&] { MPI_Igather(in.data(), block, MPI_FLOAT, out.data(), block, MPI_FLOAT, 0, all, &request), wait(); }},
      {"scatter", [&] { MPI_Scatter(in.data(), block, MPI_FLOAT, out.data(), block, MPI_FLOAT, 0, all); },
       [&] { MPI_Iscatter(in.data(), block, MPI_FLOAT, out.data(), block, MPI_FLOAT, 0, all, &request), wait(); }},
      {"permute",
       [&] {
         MPI_Sendrecv(in.data(), count, MPI_FLOAT, (rank + 1) % ranks, 0, out.data(), count, MPI_FLOAT,
                      (rank + ranks - 1) % ranks, 0, all, MPI_STATUS_IGNORE);
       },
       [&] {
         MPI_Irecv(out.data(), count, MPI_FLOAT, (rank + ranks - 1) % ranks, 0, all, &request);
         MPI_Send(in.data(), count, MPI_FLOAT, (rank + 1) % ranks, 0, all), wait();
       }},
      {"barrier", [&] { MPI_Barrier(all); }, [&] { MPI_Ibarrier(all, &request), wait(); }},
  };
  for (const Call& call : calls) {
    const std::string name = call.name;
    const std::function<void()>& body = nonblocking ? call.nonblocking : call.blocking;
    for (long bytes = least; bytes <= most; bytes *= 4) {
      const bool moves = name != "barrier";
      count = static_cast<int>(bytes / 4);
      block = count / ranks;
      const tessera::comm::Timing timing = tessera::comm::slowest_median(
          options, body, [&] { MPI_Barrier(all); },
          [&](double mine) {
            double most_of_all = 0;
            MPI_Allreduce(&mine, &most_of_all, 1, MPI_DOUBLE, MPI_MAX, all);
            return most_of_all;
          });
      if (rank == 0) std::printf("%s %ld %.3f\n", call.name, moves ? bytes : 0, timing.seconds * 1e6);
      if (!moves) break;
    }
  }
  MPI_Finalize();
  return 0;
}
