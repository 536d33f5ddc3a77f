#include "tessera/comm/mpi/mpi_transfer.h"

#include <array>
#include <chrono>
#include <cstring>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/comm/reduce.h"

namespace tessera::comm {
namespace {

// Tags on a group's communicator.
constexpr int kMessage = 1, kPermute = 2;

// Looks before a waiting thread sleeps between them, during which MPI moves nothing; a yielding look takes about a
// microsecond where nobody else wants the core.
constexpr int kYields = 200'000;
constexpr int kLooksAtOnce = 32;
/// Looks before the first yield, each a fraction of a microsecond: what ranks that come together need for little.
constexpr int kQuickLooks = 16;
constexpr std::chrono::microseconds kNap{100};

/// Looks of who computes meanwhile, each time: each moves a fragment or two of what has come.
constexpr int kLooksMeanwhile = 8;

/// in_out = the reduction of in and in_out, by our own loops.
template <DType D, Reduction R>
void combine(void* in, void* in_out, int* count, MPI_Datatype*) {
  const std::array<const void*, 2> inputs{in, in_out};
  const std::array<void*, 1> outputs{in_out};
  reduce_elements(D, R, inputs, outputs, *count);
}

template <DType D, Reduction R>
MPI_Op own_op() {
  static const MPI_Op op = [] {
    MPI_Op made;
    check_mpi(MPI_Op_create(combine<D, R>, 1, &made), "MPI_Op_create");
    return made;
  }();
  return op;
}

/// MPI's own operation where it gives our result. Open MPI's sums of short integers stop at their largest value, where
/// ours wrap, and its maxima and minima of floats lose NaN.
MPI_Op mpi_op(DType dtype, Reduction reduction) {
  switch (reduction) {
    case Reduction::max:
      if (dtype == DType::float32) return own_op<DType::float32, Reduction::max>();
      if (dtype == DType::float64) return own_op<DType::float64, Reduction::max>();
      return MPI_MAX;
    case Reduction::min:
      if (dtype == DType::float32) return own_op<DType::float32, Reduction::min>();
      if (dtype == DType::float64) return own_op<DType::float64, Reduction::min>();
      return MPI_MIN;
    default:
      if (dtype == DType::int8 || dtype == DType::uint8) return own_op<DType::uint8, Reduction::sum>();
      if (dtype == DType::int16 || dtype == DType::uint16) return own_op<DType::uint16, Reduction::sum>();
      return MPI_SUM;
  }
}

}  // namespace

MpiTransfer::MpiTransfer(MpiFabric& fabric, MPI_Comm comm, Staged& staged)
    : fabric_(fabric), comm_(comm), staged_(staged) {
  const Operation& operation = staged.operation();
  count_ = mpi_count(staged.count(), operation);
  auto layout = [&](const std::vector<int64_t>& counts, std::vector<int>& lengths, std::vector<int>& offsets) {
    int64_t offset = 0;
    for (int64_t count : counts) {
      lengths.push_back(mpi_count(count, operation));
      offsets.push_back(mpi_count(offset, operation));
      offset += count;
    }
    mpi_count(offset, operation);
  };
  layout(staged.counts(), counts_, offsets_);
  layout(staged.recv_counts(), recv_counts_, recv_offsets_);
  type_ = mpi_type_of_bytes(staged.element_bytes());
  std::lock_guard lock(fabric_.mutex());
  begin(operation.kind);
}

void MpiTransfer::begin(Kind kind) {
  switch (kind) {
    case Kind::all_reduce:
    case Kind::reduce:
    case Kind::reduce_scatter:
      return reduce();
    case Kind::all_gather:
    case Kind::gather:
    case Kind::scatter:
      return move_blocks();
    case Kind::all_to_all:
      return exchange();
    case Kind::broadcast:
      return broadcast();
    case Kind::permute:
      receive(kPermute);
      return send(kPermute);
    case Kind::send:
      return send(kMessage);
    case Kind::recv:
      return receive(kMessage);
    case Kind::barrier:
      return check_mpi(MPI_Ibarrier(comm_, add_request()), "MPI_Ibarrier");
  }
}

void MpiTransfer::reduce() {
  const Operation& operation = staged_.operation();
  const bool in_place = staged_.in() == staged_.out();
  const void* in = in_place ? MPI_IN_PLACE : staged_.in();
  const MPI_Datatype type = mpi_type(staged_.dtype());
  const MPI_Op op = mpi_op(staged_.dtype(), staged_.reduction());
  if (operation.kind == Kind::all_reduce)
    return check_mpi(MPI_Iallreduce(in, staged_.out(), count_, type, op, comm_, add_request()), "MPI_Iallreduce");
  if (operation.kind == Kind::reduce_scatter)
    return check_mpi(MPI_Ireduce_scatter(staged_.in(), staged_.out(), counts_.data(), type, op, comm_, add_request()),
                     "MPI_Ireduce_scatter");
  const bool root = staged_.member() == operation.root;
  check_mpi(MPI_Ireduce(root ? in : staged_.in(), root ? staged_.out() : nullptr, count_, type, op, operation.root,
                        comm_, add_request()),
            "MPI_Ireduce");
}

void MpiTransfer::move_blocks() {
  const Operation& operation = staged_.operation();
  const int mine = counts_[static_cast<size_t>(staged_.member())];
  if (operation.kind == Kind::all_gather)
    check_mpi(MPI_Iallgatherv(staged_.in(), mine, type_, staged_.out(), counts_.data(), offsets_.data(), type_, comm_,
                              add_request()),
              "MPI_Iallgatherv");
  else if (operation.kind == Kind::gather)
    check_mpi(MPI_Igatherv(staged_.in(), mine, type_, staged_.out(), counts_.data(), offsets_.data(), type_,
                           operation.root, comm_, add_request()),
              "MPI_Igatherv");
  else
    check_mpi(MPI_Iscatterv(staged_.in(), counts_.data(), offsets_.data(), type_, staged_.out(), mine, type_,
                            operation.root, comm_, add_request()),
              "MPI_Iscatterv");
}

void MpiTransfer::exchange() {
  check_mpi(MPI_Ialltoallv(staged_.in(), counts_.data(), offsets_.data(), type_, staged_.out(), recv_counts_.data(),
                           recv_offsets_.data(), type_, comm_, add_request()),
            "MPI_Ialltoallv");
}

void MpiTransfer::broadcast() {
  const Operation& operation = staged_.operation();
  const bool root = staged_.member() == operation.root;
  const size_t bytes = static_cast<size_t>(count_) * staged_.element_bytes();
  if (root && staged_.in() != staged_.out() && bytes > 0) std::memcpy(staged_.out(), staged_.in(), bytes);
  check_mpi(MPI_Ibcast(root ? const_cast<void*>(staged_.in()) : staged_.out(), count_, type_, operation.root, comm_,
                       add_request()),
            "MPI_Ibcast");
}

void MpiTransfer::send(int tag) {
  const int to = staged_.operation().to;
  if (to < 0) return;
  if (tag == kPermute)  // the receiver has come or will: the caller's buffer serves until then
    return check_mpi(MPI_Isend(staged_.in(), count_, type_, to, tag, comm_, add_request()), "MPI_Isend");
  const size_t bytes = static_cast<size_t>(count_) * staged_.element_bytes();
  std::vector<std::byte> copy(bytes);
  if (bytes > 0) std::memcpy(copy.data(), staged_.in(), bytes);
  MPI_Request request;
  check_mpi(MPI_Isend(copy.data(), count_, type_, to, tag, comm_, &request), "MPI_Isend");
  fabric_.keep(std::move(copy), request);
}

void MpiTransfer::receive(int tag) {
  const int from = staged_.operation().from;
  const size_t bytes = static_cast<size_t>(count_) * staged_.element_bytes();
  if (from < 0) {
    if (bytes > 0) std::memset(staged_.out(), 0, bytes);
    return;
  }
  check_mpi(MPI_Irecv(staged_.out(), count_, type_, from, tag, comm_, add_request()), "MPI_Irecv");
}

bool MpiTransfer::test() {
  for (int count = 0; count < kLooksMeanwhile; ++count)
    if (look()) return true;
  return false;
}

bool MpiTransfer::look() {
  std::lock_guard lock(fabric_.mutex());
  int done = 0;
  check_mpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE),
            "MPI_Testall");
  return done != 0;
}

bool MpiTransfer::advance() {
  for (int count = 0; count < kLooksAtOnce; ++count, ++idle_) {
    if (look()) return true;
    if (idle_ < kQuickLooks) continue;
    if (idle_ < kYields)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(kNap);
  }
  return false;
}

}  // namespace tessera::comm
