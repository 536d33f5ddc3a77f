#include "tessera/comm/plugin.h"

#include <mpi.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/comm/mpi/mpi_fabric.h"
#include "tessera/comm/mpi/mpi_world.h"

namespace {

/// Ends this process if MPI does not start in time: its start waits for all ranks, and cannot be interrupted. The
/// launcher then ends the others.
class Patience {
 public:
  Patience(int rank, std::chrono::milliseconds timeout) : thread_([this, rank, timeout] { watch(rank, timeout); }) {}
  ~Patience() {
    {
      std::lock_guard lock(mutex_);
      begun_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

 private:
  void watch(int rank, std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, timeout, [this] { return begun_; })) return;
    std::fprintf(
        stderr,
        "tessera: [mpi] rank %d gave up after %lld ms: MPI does not start, so not all ranks have joined; one was "
        "started late, ended before, or runs something else\n",
        rank, static_cast<long long>(timeout.count()));
    std::_Exit(static_cast<int>(tessera::ErrorKind::running));
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool begun_ = false;
  std::thread thread_;
};

}  // namespace

extern "C" {

const char* tessera_plugin_abi() {
  return tessera::comm::plugin_abi();
}

tessera::comm::World* tessera_plugin_connect(const tessera::comm::Launched& launch,
                                             const tessera::comm::WorldOptions& options) {
  using namespace tessera;
  int provided = 0, rank = 0, size = 0;
  {
    const Patience patience(launch.rank, options.join_timeout);
    comm::check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
  }
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
