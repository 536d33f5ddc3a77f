#pragma once

#include "tessera/comm/mpi/mpi_transfer.h"

namespace tessera::comm {

/// A collective that uses MPI's own nonblocking one, or a message.
class LibraryTransfer : public MpiTransfer {
 public:
  LibraryTransfer(MpiFabric& fabric, MPI_Comm comm, const Staged& staged);

 private:
  void begin(Kind kind);
  void reduce();
  void move_blocks();
  void broadcast();
  void exchange();
  void send();
  void receive();
  bool look() override { return all_done(requests_); }
  MPI_Request* add_request() { return &requests_.emplace_back(MPI_REQUEST_NULL); }

  MPI_Comm comm_;
  const Staged& staged_;
  int count_ = 0;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
  // MPI reads these until the operation ends.
  std::vector<int> counts_, offsets_, recv_counts_, recv_offsets_;
  std::vector<MPI_Request> requests_;
};

}  // namespace tessera::comm
