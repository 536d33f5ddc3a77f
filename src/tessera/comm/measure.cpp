#include "tessera/comm/measure.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "tessera/comm/operation.h"

namespace tessera::comm {
namespace {

std::vector<int64_t> balanced(int64_t count, int members) {
  std::vector<int64_t> counts;
  for (int j = 0; j < members; ++j) counts.push_back((count + members - 1 - j) / members);
  return counts;
}

}  // namespace

Meter::Meter(World& world, int rank, int64_t largest, const TimingOptions& options, bool writes)
    : world_(world), rank_(rank), options_(options), writes_(writes) {
  std::vector<int> members(static_cast<size_t>(world.size()));
  std::iota(members.begin(), members.end(), 0);
  all_ = world.join(rank, members);
  const auto bytes = static_cast<size_t>(largest);
  in_ = world.allocate(rank, bytes, "a message");
  out_ = world.allocate(rank, bytes, "a message");
  std::memset(in_.get(), 0, bytes);
  std::memset(out_.get(), 0, bytes);
}

Timing Meter::time(Kind kind, std::span<const int> members, int64_t bytes) {
  const auto communicator = world_.join(rank_, members);
  const int size = communicator->size(), me = communicator->member();
  Operation operation;
  operation.kind = kind;
  operation.label = "bench";
  operation.count = kind == Kind::barrier ? 0 : bytes / static_cast<int64_t>(sizeof(float));
  // The root of a broadcast sends its own buffer; programs broadcast in place.
  operation.in = kind == Kind::broadcast ? out_.get() : in_.get();
  operation.out = out_.get();
  const std::vector<int64_t> counts = balanced(operation.count, size);
  const std::vector<int64_t> received(static_cast<size_t>(size), counts[me]);
  operation.counts = counts;
  if (kind == Kind::all_to_all) operation.recv_counts = received;
  if (kind == Kind::permute) {
    operation.to = (me + 1) % size;
    operation.from = (me + size - 1) % size;
  }
  if (kind == Kind::send) {
    operation.kind = me == 0 ? Kind::recv : Kind::send;
    operation.from = size - 1;
    operation.to = 0;
  }
  const bool is_idle = kind == Kind::send && me != 0 && me != size - 1;
  const auto run = [&] {
    if (!is_idle) communicator->run(operation);
  };
  if (!writes_ || kind == Kind::barrier) return median(run);
  std::byte* const operand = kind == Kind::broadcast ? out_.get() : in_.get();
  const size_t written = is_idle ? 0 : in_bytes(operation, me);
  const auto write = [&] {
    std::memset(operand, 0, written);
    asm volatile("" ::: "memory");  // the compiler must keep what nobody reads
  };
  Timing timing = median([&] {
    write();
    run();
  });
  const double writing = median(write).seconds;
  timing.seconds -= std::min(writing, timing.seconds / 2);  // disturbances must not make it nothing
  return timing;
}

Timing Meter::time_of_copy(int64_t bytes) {
  return median([&] {
    std::memcpy(out_.get(), in_.get(), static_cast<size_t>(bytes));
    asm volatile("" ::: "memory");  // the compiler must keep a copy that nobody reads
  });
}

Timing Meter::time_by_levels(std::span<const int> near, std::span<const int> far, int64_t bytes) {
  const auto inside = world_.join(rank_, near), across = world_.join(rank_, far);
  const std::vector<int64_t> counts = balanced(bytes / static_cast<int64_t>(sizeof(float)), inside->size());
  Operation scatter;
  scatter.kind = Kind::reduce_scatter;
  scatter.in = in_.get();
  scatter.out = out_.get();
  scatter.counts = counts;
  scatter.label = "bench";
  Operation reduce = scatter;
  reduce.kind = Kind::all_reduce;
  reduce.in = out_.get();
  reduce.counts = {};
  reduce.count = counts[static_cast<size_t>(inside->member())];
  Operation gather = scatter;
  gather.kind = Kind::all_gather;
  gather.in = out_.get();
  gather.out = in_.get();
  return median([&] {
    inside->run(scatter);
    across->run(reduce);
    inside->run(gather);
  });
}

Timing Meter::median(const std::function<void()>& body) {
  return slowest_median(
      options_, body, [&] { all_->run({}); }, [&](double seconds) { return slowest(seconds); });
}

double Meter::slowest(double seconds) {
  double most = 0;
  Operation operation;
  operation.kind = Kind::all_reduce;
  operation.dtype = DType::float64;
  operation.reduction = Reduction::max;
  operation.in = &seconds;
  operation.out = &most;
  operation.count = 1;
  operation.label = "bench";
  all_->run(operation);
  return most;
}

}  // namespace tessera::comm
