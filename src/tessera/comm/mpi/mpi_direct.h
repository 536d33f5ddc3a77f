#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "tessera/comm/mpi/mpi_transfer.h"
#include "tessera/comm/remote/direct_plan.h"

namespace tessera::comm {

/// An operation by messages between every two members, following its DirectPlan. An owner receives the data that it
/// reduces in pieces, a few at a time.
class DirectTransfer : public MpiTransfer {
 public:
  /// `number` distinguishes it from other collectives of the group that are under way.
  DirectTransfer(MpiFabric& fabric, MPI_Comm comm, const Staged& staged, uint64_t number);
  ~DirectTransfer() override;

 private:
  using Range = DirectPlan::Range;
  /// The same piece of this member's range from all others.
  struct Row {
    std::vector<MPI_Request> requests;
    MpiFabric::Scratch scratch;
  };
  static constexpr int64_t kRows = 4;

  bool look() override;
  void begin_reducing();
  void receive_row(int64_t row);
  void reduce_row(int64_t row);
  Row& place_of(int64_t row) { return window_[static_cast<size_t>(row % kRows)]; }
  Range piece_of(const Range& range, int64_t row) const;
  int64_t rows_of(const Range& range) const;

  void begin_moving();
  void send(size_t to, const void* from, int64_t count, std::vector<MPI_Request>& requests);
  void receive(size_t from, void* to, int64_t count, std::vector<MPI_Request>& requests);

  const std::byte* in(int64_t at) const { return static_cast<const std::byte*>(staged_.in()) + plan_.bytes_of(at); }
  std::byte* out(int64_t at) const { return static_cast<std::byte*>(staged_.out()) + plan_.bytes_of(at); }

  const MPI_Comm comm_;
  const Staged& staged_;
  const DirectPlan plan_;
  const MPI_Datatype type_;
  const int tag_;

  Range mine_;                   // the range that this member reduces
  std::byte* result_ = nullptr;  // of that
  int64_t row_ = 0, rows_ = 0;
  std::array<Row, kRows> window_;
  std::vector<MPI_Request> requests_;        // sends of the first part, then all of the second
  std::unique_ptr<std::byte[]> own_result_;  // if the caller's memory has no room for it
  bool to_move_;                             // the second part has not begun
};

}  // namespace tessera::comm
