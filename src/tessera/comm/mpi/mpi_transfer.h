#pragma once

#include "tessera/comm/mpi/mpi_fabric.h"
#include "tessera/comm/remote/remote_communicator.h"

namespace tessera::comm {

/// A staged operation as nonblocking operations of MPI, begun by the constructor.
class MpiTransfer : public Transfer {
 public:
  MpiTransfer(MpiFabric& fabric, MPI_Comm comm, Staged& staged);
  bool advance() override;
  bool test() override;

 private:
  void begin(Kind kind);
  void reduce();
  void move_blocks();
  void broadcast();
  void exchange();
  void send(int tag);
  void receive(int tag);
  bool look();
  MPI_Request* add_request() { return &requests_.emplace_back(MPI_REQUEST_NULL); }

  MpiFabric& fabric_;
  MPI_Comm comm_;
  Staged& staged_;
  int count_ = 0;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
  // MPI reads these until the operation ends.
  std::vector<int> counts_, offsets_, recv_counts_, recv_offsets_;
  std::vector<MPI_Request> requests_;
  int idle_ = 0;  // looks in vain
};

}  // namespace tessera::comm
