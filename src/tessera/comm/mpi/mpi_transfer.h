#pragma once

#include <mpi.h>

#include <span>
#include <vector>

#include "tessera/comm/mpi/mpi_fabric.h"
#include "tessera/comm/remote/remote_communicator.h"
#include "tessera/comm/remote/staged.h"

namespace tessera::comm {

/// An operation as requests of MPI's, which advance when somebody looks at them. Who waits for one, or tests it, or
/// joins a group, looks at all of the process' that have parts of their own to begin: in whatever order ranks wait,
/// nobody waits in a circle.
class MpiTransfer : public Transfer {
 public:
  ~MpiTransfer() override;
  bool advance() override;
  bool test() override;

  /// For who waits for something else: looks at all that have parts of their own to begin.
  static void look_at_unfinished(MpiFabric& fabric);

 protected:
  explicit MpiTransfer(MpiFabric& fabric) : fabric_(fabric) {}
  /// Whether the operation has ended; begins what follows a part that has. Under the fabric's lock.
  virtual bool look() = 0;
  static bool all_done(std::vector<MPI_Request>& requests);
  /// To be called under the fabric's lock where more than MPI's own progress is needed for the operation to end.
  void look_while_others_wait();

  MpiFabric& fabric_;

 private:
  bool look_at_all();

  bool listed_ = false;  // in MpiFabric::unfinished()
  int idle_ = 0;         // looks in vain
};

}  // namespace tessera::comm
