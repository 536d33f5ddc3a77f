#include "tessera/comm/measure.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

namespace tessera::comm {
namespace {

using Clock = std::chrono::steady_clock;

// Long against what starting together costs.
constexpr double kBatchSeconds = 1e-3;
constexpr double kMostBatches = 1000, kMostInBatch = 1 << 20;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

Meter::Meter(World& world, int rank, int64_t largest, const MeasureOptions& options)
    : world_(world), rank_(rank), options_(options) {
  std::vector<int> members(static_cast<size_t>(world.size()));
  std::iota(members.begin(), members.end(), 0);
  all_ = world.join(rank, members);
  const auto bytes = static_cast<size_t>(largest);
  in_ = world.allocate(rank, bytes, "a message");
  out_ = world.allocate(rank, bytes, "a message");
  std::memset(in_.get(), 0, bytes);
  std::memset(out_.get(), 0, bytes);
}

double Meter::time(Kind kind, std::span<const int> members, int64_t bytes) {
  const auto communicator = world_.join(rank_, members);
  const int size = communicator->size(), me = communicator->member();
  Operation operation;
  operation.kind = kind;
  operation.label = "bench";
  operation.count = kind == Kind::barrier ? 0 : bytes / static_cast<int64_t>(sizeof(float));
  // The root of a broadcast sends what it has; in place is how programs use it.
  operation.in = kind == Kind::broadcast ? out_.get() : in_.get();
  operation.out = out_.get();
  std::vector<int64_t> counts;
  for (int j = 0; j < size; ++j) counts.push_back((operation.count + size - 1 - j) / size);
  const std::vector<int64_t> received(static_cast<size_t>(size), counts[me]);
  operation.counts = counts;
  if (kind == Kind::all_to_all) operation.recv_counts = received;
  if (kind == Kind::permute) {
    operation.to = (me + 1) % size;
    operation.from = (me + size - 1) % size;
  }
  return slowest_median([&] { communicator->run(operation); });
}

double Meter::time_of_copy(int64_t bytes) {
  return slowest_median([&] {
    std::memcpy(out_.get(), in_.get(), static_cast<size_t>(bytes));
    asm volatile("" ::: "memory");  // a copy that nobody reads is a copy all the same
  });
}

double Meter::slowest_median(const std::function<void()>& body) {
  // How many operations make a batch, and how many batches there are, must be the same on all ranks.
  body();
  meet();
  Clock::time_point start = Clock::now();
  body();
  const double once = std::max(slowest(seconds_since(start)), 1e-9);
  const auto in_batch = static_cast<int64_t>(std::clamp(std::ceil(kBatchSeconds / once), 1.0, kMostInBatch));
  const double batch = once * static_cast<double>(in_batch);
  const auto batches = static_cast<int64_t>(
      std::clamp(std::ceil(options_.seconds / batch), static_cast<double>(options_.repeats), kMostBatches));
  std::vector<double> times;
  for (int64_t b = 0; b < batches; ++b) {
    meet();
    start = Clock::now();
    for (int64_t i = 0; i < in_batch; ++i) body();
    times.push_back(slowest(seconds_since(start)));
  }
  std::nth_element(times.begin(), times.begin() + batches / 2, times.end());
  return times[static_cast<size_t>(batches / 2)] / static_cast<double>(in_batch);
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

void Meter::meet() {
  all_->run({});
}

}  // namespace tessera::comm
