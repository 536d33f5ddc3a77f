#pragma once

#include <mpi.h>

#include <span>
#include <vector>

#include "tessera/comm/mpi/mpi_fabric.h"
#include "tessera/comm/remote/remote_communicator.h"
#include "tessera/comm/remote/staged.h"

namespace tessera::comm {

/// An operation as MPI requests, which advance when they are tested. Any wait, test or join of a group looks at
/// all operations of the process that have parts of their own to begin, so that ranks cannot wait in a cycle, whatever
/// the order of their waits.
class MpiTransfer : public Transfer {
 public:
  ~MpiTransfer() override;
  bool advance() override;
  bool test() override;

  /// Tests all operations that have further parts to begin; called by waits for something else.
  static void look_at_unfinished(MpiFabric& fabric);

 protected:
  explicit MpiTransfer(MpiFabric& fabric) : fabric_(fabric) {}
  /// Whether the operation has ended; begins the second part when the first has ended. Under the fabric's lock.
  virtual bool look() = 0;
  static bool all_done(std::vector<MPI_Request>& requests);
  /// Lists the operation if it needs more than MPI's own progress to end. Called under the fabric's lock.
  void look_while_others_wait();

  MpiFabric& fabric_;

 private:
  bool look_at_all();

  bool listed_ = false;  // in MpiFabric::unfinished()
  int idle_ = 0;         // looks in vain
};

}  // namespace tessera::comm
