#include "tessera/comm/mpi/mpi_world.h"

#include <chrono>
#include <exception>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/comm/group.h"
#include "tessera/comm/mpi/mpi_communicator.h"

namespace tessera::comm {
namespace {

/// When a run has failed, the launcher ends all ranks once one has gone; rank 0 must report before that.
constexpr std::chrono::seconds kLinger{1};

class MpiWorld : public World {
 public:
  MpiWorld(MPI_Comm base, const WorldOptions& options, bool finalize, int most_direct)
      : fabric_(std::make_shared<MpiFabric>(base, options.spin, most_direct)),
        watch_(
            std::make_shared<Watch>(fabric_->rank(), fabric_->size(), options.timeout, options.join_timeout, *fabric_)),
        timeout_(options.timeout),
        finalize_(finalize) {}

  ~MpiWorld() override {
    if (std::uncaught_exceptions() > 0) watch_->abort("it gave up", ErrorKind::running);
    if (watch_->ended()) {
      fabric_->abandon();
      if (finalize_ && fabric_->rank() != 0) std::this_thread::sleep_for(kLinger);
      return;
    }
    fabric_->flush(timeout_);  // a message's receiver may arrive after its sender has left
    watch_.reset();
    fabric_.reset();
    if (finalize_) MPI_Finalize();
  }

  int size() const override { return fabric_->size(); }
  std::vector<int> local_ranks() const override { return {fabric_->rank()}; }

  std::unique_ptr<Communicator> join(int rank, std::span<const int> members) override {
    check(rank == fabric_->rank(), "a process of MPI is one rank, and joins as that");
    member_of(rank, members, size());
    return std::make_unique<MpiCommunicator>(fabric_, watch_, members);
  }

  bool advances_by_tests() const override { return true; }
  void abort(int, std::string_view message, ErrorKind kind) override { watch_->abort(message, kind); }
  bool first_has_heard(std::chrono::milliseconds most) override { return watch_->first_has_heard(most); }
  std::optional<End> end() const override { return watch_->end(); }

 private:
  std::shared_ptr<MpiFabric> fabric_;  // these live on in the communicators
  std::shared_ptr<Watch> watch_;
  std::chrono::milliseconds timeout_;
  bool finalize_;
};

}  // namespace

std::unique_ptr<World> make_mpi_world(MPI_Comm base, const WorldOptions& options, bool finalize, int most_direct) {
  return std::make_unique<MpiWorld>(base, options, finalize, most_direct);
}

}  // namespace tessera::comm
