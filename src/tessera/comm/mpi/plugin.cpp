#include "tessera/comm/plugin.h"

#include <mpi.h>

#include "tessera/base/error.h"
#include "tessera/comm/mpi/mpi_fabric.h"
#include "tessera/comm/mpi/mpi_world.h"

extern "C" {

const char* tessera_plugin_version() {
  return tessera::comm::plugin_version();
}

tessera::comm::World* tessera_plugin_connect(const tessera::comm::Launch& launch,
                                             const tessera::comm::WorldOptions& options) {
  using namespace tessera;
  int provided = 0, rank = 0, size = 0;
  comm::check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_SERIALIZED)
    fail("mpi", "this MPI library supports one thread only; use one built with thread support");
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (launch.size != 0 && (launch.size != size || launch.rank != rank))
    fail("mpi", "{} started rank {} of {}, but MPI says {} of {}; launcher and libtessera_mpi.so are of different MPIs",
         launch.launcher, launch.rank, launch.size, rank, size);
  return comm::make_mpi_world(MPI_COMM_WORLD, options, true).release();
}
}
