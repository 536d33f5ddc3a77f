#include "tessera/comm/mpi/mpi_library.h"

#include <array>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/comm/reduce.h"

namespace tessera::comm {
namespace {

constexpr int kMessageTag = 1;

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

/// MPI's own operation, if it gives our result. Open MPI's sums of short integers saturate, where ours wrap, and its
/// maxima and minima of floats lose NaN.
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

LibraryTransfer::LibraryTransfer(MpiFabric& fabric, MPI_Comm comm, const Staged& staged)
    : MpiTransfer(fabric), comm_(comm), staged_(staged) {
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

void LibraryTransfer::begin(Kind kind) {
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
    case Kind::send:
      return send();
    case Kind::recv:
      return receive();
    case Kind::permute:
      break;
    case Kind::barrier:
      return check_mpi(MPI_Ibarrier(comm_, add_request()), "MPI_Ibarrier");
  }
  check(false, "a permutation is messages");
}

void LibraryTransfer::reduce() {
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

void LibraryTransfer::move_blocks() {
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

void LibraryTransfer::exchange() {
  check_mpi(MPI_Ialltoallv(staged_.in(), counts_.data(), offsets_.data(), type_, staged_.out(), recv_counts_.data(),
                           recv_offsets_.data(), type_, comm_, add_request()),
            "MPI_Ialltoallv");
}

void LibraryTransfer::broadcast() {
  const Operation& operation = staged_.operation();
  const bool root = staged_.member() == operation.root;
  const size_t bytes = static_cast<size_t>(count_) * staged_.element_bytes();
  if (root && staged_.in() != staged_.out() && bytes > 0) std::memcpy(staged_.out(), staged_.in(), bytes);
  check_mpi(MPI_Ibcast(root ? const_cast<void*>(staged_.in()) : staged_.out(), count_, type_, operation.root, comm_,
                       add_request()),
            "MPI_Ibcast");
}

void LibraryTransfer::send() {
  const int to = staged_.operation().to;
  if (to < 0) return;
  const size_t bytes = static_cast<size_t>(count_) * staged_.element_bytes();
  MpiFabric::Message copy = std::make_unique_for_overwrite<std::byte[]>(bytes);
  if (bytes > 0) std::memcpy(copy.get(), staged_.in(), bytes);
  MPI_Request request;
  check_mpi(MPI_Isend(copy.get(), count_, type_, to, kMessageTag, comm_, &request), "MPI_Isend");
  fabric_.keep(std::move(copy), request);
}

void LibraryTransfer::receive() {
  const int from = staged_.operation().from;
  const size_t bytes = static_cast<size_t>(count_) * staged_.element_bytes();
  if (from < 0) {
    if (bytes > 0) std::memset(staged_.out(), 0, bytes);
    return;
  }
  check_mpi(MPI_Irecv(staged_.out(), count_, type_, from, kMessageTag, comm_, add_request()), "MPI_Irecv");
}

}  // namespace tessera::comm
