#include "tessera/comm/measure.h"

#include <algorithm>
#include <chrono>
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
    operation.counts = {};
    operation.from = size - 1;
    operation.to = 0;
  }
  const bool is_idle = kind == Kind::send && (size == 1 || (me != 0 && me != size - 1));
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

namespace {

constexpr int kRepeats = 5;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Seconds of one `body` among those that run for a while.
double time_in_loop(const std::function<void()>& body) {
  constexpr double kWhile = 0.02;
  const auto start = std::chrono::steady_clock::now();
  int times = 0;
  double passed = 0;
  while (passed < kWhile) {
    body();
    ++times;
    passed = seconds_since(start);
  }
  return passed / times;
}

}  // namespace

Slowdown Meter::slowdown(const std::function<void()>& kernel, int64_t bytes, bool in_background) {
  if (slowest(kernel ? 0 : 1) > 0) return {};
  const Slowdown own = in_background ? slowdown_in_background(kernel, bytes) : slowdown_at_wait(kernel, bytes);
  return {std::max(1.0, slowest(own.computation)), std::max(1.0, slowest(own.communication))};
}

Slowdown Meter::slowdown_in_background(const std::function<void()>& kernel, int64_t bytes) {
  Operation operation;
  operation.kind = Kind::all_reduce;
  operation.label = "bench";
  operation.in = in_.get();
  operation.out = out_.get();
  operation.count = bytes / static_cast<int64_t>(sizeof(float));
  const double transfer = median([&] { all_->run(operation); }).seconds, computing = median(kernel).seconds;
  // A library that says nothing of a transfer's end must not keep the rank computing.
  const double most = 20 * (1 + transfer / computing);
  std::vector<double> kernels, transfers;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    all_->run({});
    const auto start = std::chrono::steady_clock::now();
    const Ticket ticket = all_->start(operation);
    double times = 0;
    do {
      kernel();
      ++times;
    } while (!all_->test(ticket) && times < most);
    const double passed = seconds_since(start);
    all_->wait(ticket);
    kernels.push_back(passed / times / computing);
    transfers.push_back((passed - passed / times / 2) / transfer);  // it ended during the last kernel
  }
  return {median_of(kernels), median_of(transfers)};
}

Slowdown Meter::slowdown_at_wait(const std::function<void()>& kernel, int64_t bytes) {
  const bool computes = rank_ % 2 != 0;
  const std::function<void()> copy = [&] {
    std::memcpy(out_.get(), in_.get(), static_cast<size_t>(bytes));
    asm volatile("" ::: "memory");
  };
  const auto& body = computes ? kernel : copy;
  // Only these ranks at once; 0: this is none of them.
  const auto time = [&](bool computing, bool copying) {
    all_->run({});
    return (computes ? computing : copying) ? time_in_loop(body) : 0;
  };
  std::vector<double> ratios;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const double computing = time(true, false), copying = time(false, true), beside = time(true, true);
    ratios.push_back(beside / (computes ? computing : copying));
  }
  const double ratio = median_of(ratios);
  return computes ? Slowdown{ratio, 1} : Slowdown{1, ratio};
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
