/* What MPI takes for the collectives that bench_collectives times: mpirun -n RANKS collectives_mpi. A line for each
 * kind and size: "KIND BYTES MICROSECONDS", the median of the slowest rank's times. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KINDS = 5, SIZES = 3, MOST_RUNS = 2000 };

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void communicate(int kind, const float* in, float* out, int count, int ranks) {
  switch (kind) {
    case 0:
      MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      break;
    case 1:
      MPI_Allgather(in, count / ranks, MPI_FLOAT, out, count / ranks, MPI_FLOAT, MPI_COMM_WORLD);
      break;
    case 2:
      MPI_Reduce_scatter_block(in, out, count / ranks, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      break;
    case 3:
      MPI_Alltoall(in, count / ranks, MPI_FLOAT, out, count / ranks, MPI_FLOAT, MPI_COMM_WORLD);
      break;
    default:
      MPI_Bcast(out, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
  }
}

int main(int argc, char** argv) {
  static const char* const names[KINDS] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"};
  static const int sizes[SIZES] = {1 << 10, 1 << 20, 64 << 20};
  static double times[MOST_RUNS];
  int rank, ranks;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int kind = 0; kind < KINDS; ++kind)
    for (int s = 0; s < SIZES; ++s) {
      const int count = sizes[s] / (int)sizeof(float), runs = sizes[s] <= 1024      ? MOST_RUNS
                                                              : sizes[s] <= 1 << 20 ? 200
                                                                                    : 10;
      float *in = malloc((size_t)sizes[s]), *out = malloc((size_t)sizes[s]);
      memset(in, 0, (size_t)sizes[s]);
      memset(out, 0, (size_t)sizes[s]);
      for (int i = -3; i < runs; ++i) {
        MPI_Barrier(MPI_COMM_WORLD);
        const double start = MPI_Wtime();
        communicate(kind, in, out, count, ranks);
        double mine = (MPI_Wtime() - start) * 1e6, slowest;
        MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (i >= 0) times[i] = slowest;
      }
      qsort(times, (size_t)runs, sizeof times[0], by_value);
      if (rank == 0) printf("%s %d %.2f\n", names[kind], sizes[s], times[runs / 2]);
      free(in);
      free(out);
    }
  MPI_Finalize();
  return 0;
}
