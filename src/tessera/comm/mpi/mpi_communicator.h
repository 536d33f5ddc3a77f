#pragma once

#include "tessera/comm/mpi/mpi_fabric.h"
#include "tessera/comm/remote/direct_plan.h"
#include "tessera/comm/remote/remote_communicator.h"

namespace tessera::comm {

/// One process's membership of a group, as an MPI communicator of its own. Every operation consists of MPI's
/// nonblocking ones, which advance when a waiting rank tests them.
class MpiCommunicator : public RemoteCommunicator {
 public:
  /// Collective over the members; waits for them under the watch.
  MpiCommunicator(std::shared_ptr<MpiFabric> fabric, std::shared_ptr<Watch> watch, std::span<const int> members);
  ~MpiCommunicator() override;

 protected:
  std::unique_ptr<Transfer> begin(Staged& staged, uint64_t number) override;
  bool library_adds(const Operation& operation) const override;

 private:
  std::shared_ptr<MpiFabric> fabric_;
  std::shared_ptr<Watch> watch_;
  const DirectPlan::Group group_;
  MPI_Comm comm_ = MPI_COMM_NULL;
};

}  // namespace tessera::comm
