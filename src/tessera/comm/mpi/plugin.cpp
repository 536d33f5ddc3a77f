#include "tessera/comm/plugin.h"

#include <mpi.h>

#include <exception>
#include <memory>

#include "tessera/base/error.h"
#include "tessera/comm/mpi/mpi_fabric.h"
#include "tessera/comm/mpi/mpi_world.h"

namespace tessera::comm {
namespace {

/// MPI for as long as its world lives. After a run that failed, MPI is not finalized, which would wait for ranks that
/// no longer come: the process's end then ends the job.
class MpiSession : public World {
 public:
  explicit MpiSession(const WorldOptions& options) {
    int provided = 0;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
    if (provided < MPI_THREAD_SERIALIZED)
      fail("mpi", "this MPI library supports one thread only; use one built with thread support");
    world_ = make_mpi_world(MPI_COMM_WORLD, options);
  }
  ~MpiSession() override {
    world_.reset();
    if (clean_ && std::uncaught_exceptions() == 0) MPI_Finalize();
  }

  int size() const override { return world_->size(); }
  std::vector<int> local_ranks() const override { return world_->local_ranks(); }
  std::unique_ptr<Communicator> join(int rank, std::span<const int> members) override {
    return world_->join(rank, members);
  }
  void abort(int rank, std::string_view message) override {
    clean_ = false;
    world_->abort(rank, message);
  }

 private:
  std::unique_ptr<World> world_;
  bool clean_ = true;
};

}  // namespace
}  // namespace tessera::comm

extern "C" {

const char* tessera_plugin_version() {
  return tessera::comm::plugin_version();
}

tessera::comm::World* tessera_plugin_connect(const tessera::comm::Launch& launch,
                                             const tessera::comm::WorldOptions& options) {
  using namespace tessera;
  auto session = std::make_unique<comm::MpiSession>(options);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (launch.size != 0 && (launch.size != session->size() || launch.rank != rank))
    fail("mpi",
         "{} started rank {} of {}, but MPI says {} of {}; the launcher and libtessera_mpi.so are of different MPIs",
         launch.launcher, launch.rank, launch.size, rank, session->size());
  return session.release();
}
}
