#include "tessera/comm/mpi/mpi_direct.h"

#include <algorithm>
#include <cstring>

#include "tessera/comm/reduce.h"

namespace tessera::comm {
namespace {

/// The piece of a member's range that is reduced at a time: it stays in the cache, and outweighs the cost of a message.
constexpr size_t kPieceBytes = 256 << 10;

/// Up to this many bytes, a reduction's owners receive all parts at once: MPI does not send longer messages at once.
constexpr size_t kMostInOnePart = 2 << 10;

/// Tags of operations, by their numbers: several may be under way.
constexpr int kFirstTag = 16;
constexpr uint64_t kTags = 1 << 14;

}  // namespace

DirectTransfer::DirectTransfer(MpiFabric& fabric, MPI_Comm comm, const Staged& staged, uint64_t number)
    : MpiTransfer(fabric),
      comm_(comm),
      staged_(staged),
      plan_(staged, kMostInOnePart),
      type_(mpi_type_of_bytes(plan_.width())),
      tag_(kFirstTag + static_cast<int>(number % kTags)),
      to_move_(plan_.moves()) {
  // Before anything is under way.
  for (const auto* counts : {&staged.counts(), &staged.recv_counts()})
    for (int64_t count : *counts) mpi_count(count, staged.operation());
  mpi_count(staged.count(), staged.operation());
  std::lock_guard lock(fabric_.mutex());
  if (plan_.reduces())
    begin_reducing();
  else
    begin_moving();
  if (to_move_ || rows_ > kRows) look_while_others_wait();
}

DirectTransfer::~DirectTransfer() {
  if (rows_ == 0) return;
  std::lock_guard lock(fabric_.mutex());
  for (Row& row : window_)
    if (row.scratch.memory) fabric_.give_back(std::move(row.scratch));
}

bool DirectTransfer::look() {
  if (row_ < rows_) {
    if (!all_done(place_of(row_).requests)) return false;
    reduce_row(row_);
    if (row_ + kRows < rows_) receive_row(row_ + kRows);
    if (++row_ < rows_) return false;
  }
  if (!all_done(requests_)) return false;
  if (!to_move_) return true;
  requests_.clear();
  begin_moving();
  return all_done(requests_);
}

void DirectTransfer::begin_reducing() {
  const Operation& operation = staged_.operation();
  const size_t me = plan_.me(), size = plan_.size();
  mine_ = plan_.owned_by(me);
  rows_ = rows_of(mine_);
  if (operation.kind == Kind::reduce && staged_.member() != operation.root) {
    own_result_ = std::make_unique_for_overwrite<std::byte[]>(plan_.bytes_of(mine_.count));
    result_ = own_result_.get();
  } else {
    result_ = out(operation.kind == Kind::reduce_scatter ? 0 : mine_.offset);
  }
  for (int64_t row = 0; row < std::min(rows_, kRows); ++row) receive_row(row);
  // A result that may overwrite sent data is written after these have left.
  const bool overwrites = operation.kind == Kind::all_reduce && !plan_.moves() && rows_ > 0;
  std::vector<MPI_Request>& sends = overwrites ? place_of(0).requests : requests_;
  for (size_t step = 1; step < size; ++step) {
    const size_t to = (me + step) % size;
    const Range theirs = plan_.owned_by(to);
    for (int64_t row = 0; row < rows_of(theirs); ++row) {
      const Range piece = piece_of(theirs, row);
      send(to, in(piece.offset), piece.count, sends);
    }
  }
}

int64_t DirectTransfer::rows_of(const Range& range) const {
  return static_cast<int64_t>((plan_.bytes_of(range.count) + kPieceBytes - 1) / kPieceBytes);
}

DirectPlan::Range DirectTransfer::piece_of(const Range& range, int64_t row) const {
  const auto piece = static_cast<int64_t>(kPieceBytes / plan_.width());
  return {range.offset + row * piece, std::min(piece, range.count - row * piece)};
}

void DirectTransfer::receive_row(int64_t row) {
  const size_t me = plan_.me(), size = plan_.size();
  Row& into = place_of(row);
  const int64_t count = piece_of(mine_, row).count;
  const size_t bytes = plan_.bytes_of(count);
  if (!into.scratch.memory) into.scratch = fabric_.take_scratch(bytes * (size - 1));
  into.requests.clear();
  into.requests.reserve(2 * size);
  for (size_t step = 1; step < size; ++step)
    receive((me + step) % size, into.scratch.memory.get() + (step - 1) * bytes, count, into.requests);
}

void DirectTransfer::reduce_row(int64_t row) {
  const size_t me = plan_.me(), size = plan_.size();
  const Range piece = piece_of(mine_, row);
  std::array<const void*, DirectPlan::kMostMembers> inputs{};
  inputs[me] = in(piece.offset);
  for (size_t step = 1; step < size; ++step)
    inputs[(me + step) % size] = place_of(row).scratch.memory.get() + (step - 1) * plan_.bytes_of(piece.count);
  void* result = result_ + plan_.bytes_of(piece.offset - mine_.offset);
  reduce_elements(staged_.dtype(), staged_.reduction(), {inputs.data(), size}, {&result, 1}, piece.count);
}

void DirectTransfer::begin_moving() {
  to_move_ = false;
  const size_t me = plan_.me(), size = plan_.size();
  const std::byte* source = plan_.reduces() ? result_ : in(0);
  requests_.reserve(2 * size);
  for (size_t step = 1; step < size; ++step) {
    const size_t from = (me + size - step) % size;
    const Range block = plan_.received_from(from);
    if (block.count > 0) receive(from, out(block.offset), block.count, requests_);
  }
  for (size_t step = 1; step < size; ++step) {
    const size_t to = (me + step) % size;
    const Range block = plan_.sent_to(to);
    if (block.count > 0) send(to, source + plan_.bytes_of(block.offset), block.count, requests_);
  }
  plan_.copy_own(source);
}

void DirectTransfer::send(size_t to, const void* from, int64_t count, std::vector<MPI_Request>& requests) {
  check_mpi(MPI_Isend(from, static_cast<int>(count), type_, static_cast<int>(to), tag_, comm_,
                      &requests.emplace_back(MPI_REQUEST_NULL)),
            "MPI_Isend");
}

void DirectTransfer::receive(size_t from, void* to, int64_t count, std::vector<MPI_Request>& requests) {
  check_mpi(MPI_Irecv(to, static_cast<int>(count), type_, static_cast<int>(from), tag_, comm_,
                      &requests.emplace_back(MPI_REQUEST_NULL)),
            "MPI_Irecv");
}

}  // namespace tessera::comm
