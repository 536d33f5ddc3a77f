#pragma once

#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>

#include "../backend.h"
#include "tessera/comm/mpi/mpi_world.h"

namespace tessera::comm {

/// The first `ranks` processes run the body in a world of their own; the others go on to the next.
inline void run_on_mpi(int ranks, const RankBody& body, std::chrono::milliseconds timeout,
                       int most_direct = DirectPlan::kMostMembers) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm base;
  MPI_Comm_split(MPI_COMM_WORLD, rank < ranks ? 0 : MPI_UNDEFINED, rank, &base);
  if (rank >= ranks) return;
  auto world = make_mpi_world(base, {.timeout = timeout, .join_timeout = timeout}, false, most_direct);
  try {
    body(*world, rank);
  } catch (const std::exception& error) {
    ADD_FAILURE() << "rank " << rank << ": " << error.what();
    world->abort(rank, error.what());
  }
  world.reset();
  MPI_Comm_free(&base);
}

}  // namespace tessera::comm
