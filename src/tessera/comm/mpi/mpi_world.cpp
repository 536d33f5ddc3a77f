#include "tessera/comm/mpi/mpi_world.h"

#include "tessera/base/error.h"
#include "tessera/comm/group.h"
#include "tessera/comm/mpi/mpi_communicator.h"

namespace tessera::comm {
namespace {

class MpiWorld : public World {
 public:
  MpiWorld(MPI_Comm base, const WorldOptions& options)
      : fabric_(std::make_shared<MpiFabric>(base)),
        watch_(std::make_shared<Watch>(fabric_->rank(), fabric_->size(), options.timeout, *fabric_)),
        timeout_(options.timeout) {}
  ~MpiWorld() override {
    if (watch_->ended())
      fabric_->abandon();
    else
      fabric_->flush(timeout_);  // a message's receiver may come later than its sender leaves
  }

  int size() const override { return fabric_->size(); }
  std::vector<int> local_ranks() const override { return {fabric_->rank()}; }

  std::unique_ptr<Communicator> join(int rank, std::span<const int> members) override {
    check(rank == fabric_->rank(), "a process of MPI is one rank, and joins as that");
    member_of(rank, members, size());
    return std::make_unique<MpiCommunicator>(fabric_, watch_, members);
  }

  void abort(int, std::string_view message) override { watch_->abort(message); }

 private:
  std::shared_ptr<MpiFabric> fabric_;  // these live on in the communicators
  std::shared_ptr<Watch> watch_;
  std::chrono::milliseconds timeout_;
};

}  // namespace

std::unique_ptr<World> make_mpi_world(MPI_Comm base, const WorldOptions& options) {
  return std::make_unique<MpiWorld>(base, options);
}

}  // namespace tessera::comm
