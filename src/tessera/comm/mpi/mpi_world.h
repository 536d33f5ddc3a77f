#pragma once

#include <mpi.h>

#include <memory>

#include "tessera/comm/communicator.h"
#include "tessera/comm/remote/direct_plan.h"

namespace tessera::comm {

/// The ranks of an MPI communicator, of which this process is one. MPI must be initialized with MPI_THREAD_SERIALIZED
/// at least. The call is collective over `base`, and so is the world's destructor, which waits for the messages that
/// are still under way and, if `finalize`, finalizes MPI. After a failed run it does neither, since ranks may be
/// missing: a process that ends without having finalized MPI ends its job. Groups of more than `most_direct` members
/// leave collectives to MPI.
std::unique_ptr<World> make_mpi_world(MPI_Comm base, const WorldOptions& options = {}, bool finalize = false,
                                      int most_direct = DirectPlan::kMostMembers);

}  // namespace tessera::comm
