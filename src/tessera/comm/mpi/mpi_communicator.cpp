#include "tessera/comm/mpi/mpi_communicator.h"

#include <chrono>
#include <functional>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/comm/group.h"
#include "tessera/comm/mpi/mpi_direct.h"
#include "tessera/comm/mpi/mpi_library.h"

namespace tessera::comm {

MpiCommunicator::MpiCommunicator(std::shared_ptr<MpiFabric> fabric, std::shared_ptr<Watch> watch,
                                 std::span<const int> members)
    : RemoteCommunicator(watch, fabric->rank(), members, fabric->size()),
      fabric_(std::move(fabric)),
      watch_(watch),
      group_(fabric_->group_of(members)) {
  // MPI's own creation cannot be interrupted, so it begins only when all members have arrived. If one ends at that
  // moment, the launcher ends the others.
  const std::string group = group_text(members);
  fabric_->announce(group, members);
  auto here = [&] {
    if (fabric_->all_announced(group, members)) return true;
    MpiTransfer::look_at_unfinished(*fabric_);
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    return false;
  };
  watch_->wait_for_members(members, here);
  watch_->check_alive();  // a late rank may find that the others had arrived, and have given up
  std::lock_guard lock(fabric_->mutex());
  MPI_Group all, own;
  check_mpi(MPI_Comm_group(fabric_->world(), &all), "MPI_Comm_group");
  check_mpi(MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &own), "MPI_Group_incl");
  check_mpi(MPI_Comm_create_group(fabric_->world(), own, 0, &comm_), "MPI_Comm_create_group");
  MPI_Group_free(&own);
  MPI_Group_free(&all);
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
}

MpiCommunicator::~MpiCommunicator() {
  // Operations of a run that has ended may still be under way; then their communicator stays.
  if (watch_->ended()) return;
  std::lock_guard lock(fabric_->mutex());
  MPI_Comm_free(&comm_);
}

std::unique_ptr<Transfer> MpiCommunicator::begin(Staged& staged, uint64_t number) {
  if (DirectPlan::suits(staged.operation(), group_))
    return std::make_unique<DirectTransfer>(*fabric_, comm_, staged, number);
  return std::make_unique<LibraryTransfer>(*fabric_, comm_, staged);
}

bool MpiCommunicator::library_adds(const Operation& operation) const {
  return !DirectPlan::suits(operation, group_);
}

}  // namespace tessera::comm
