#include "tessera/comm/measure.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "tessera/comm/operation.h"

namespace tessera::comm {
namespace {

void on_threads(World& world, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world.size(); ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

// Passes on to another world's communicators, and counts.
class CountedWorld : public World {
 public:
  explicit CountedWorld(World& world) : world_(world) {}
  int size() const override { return world_.size(); }
  std::unique_ptr<Communicator> join(int rank, std::span<const int> members) override {
    return std::make_unique<Counted>(world_.join(rank, members), *this);
  }
  void abort(int rank, std::string_view message, ErrorKind kind) override { world_.abort(rank, message, kind); }

  std::atomic<int64_t> bytes_into_permutes = 0;
  std::atomic<int> operations = 0;
  std::atomic<int> unwritten = 0;  // whose operand is that of the operation before it

 private:
  class Counted : public Communicator {
   public:
    Counted(std::unique_ptr<Communicator> inner, CountedWorld& world) : inner_(std::move(inner)), world_(world) {}
    int member() const override { return inner_->member(); }
    int size() const override { return inner_->size(); }
    Ticket start(const Operation& operation) override {
      ++world_.operations;
      if (operation.kind == Kind::permute) world_.bytes_into_permutes = operation.count * 4;
      if (operation.dtype == DType::float32 && in_bytes(operation, member()) > 0) {
        float& first = *static_cast<float*>(const_cast<void*>(operation.in));
        if (first != 0) ++world_.unwritten;
        first = 1;
      }
      return inner_->start(operation);
    }
    void wait(Ticket ticket) override { inner_->wait(ticket); }
    bool reduces_by_element(const Operation& operation) const override { return inner_->reduces_by_element(operation); }

   private:
    std::unique_ptr<Communicator> inner_;
    CountedWorld& world_;
  };

  World& world_;
};

// Every kind, groups of any size, blocks that do not divide: all are legal operations, and all ranks find one time.
TEST(Meter, times_every_collective_alike_on_all_ranks) {
  const auto world = make_local_world(3);
  std::array<std::vector<Timing>, 3> times;
  on_threads(*world, [&](int rank) {
    Meter meter(*world, rank, 4096, {.seconds = 0});
    const std::vector<int> all = {0, 1, 2}, pair = rank < 2 ? std::vector{0, 1} : std::vector{2};
    for (Kind kind : {Kind::all_reduce, Kind::all_gather, Kind::reduce_scatter, Kind::all_to_all, Kind::broadcast,
                      Kind::reduce, Kind::gather, Kind::scatter, Kind::permute, Kind::send})
      for (const std::vector<int>& members : {all, pair}) times[rank].push_back(meter.time(kind, members, 1000));
    times[rank].push_back(meter.time(Kind::barrier, all, 0));
    times[rank].push_back(meter.time_by_levels(all, std::vector{rank}, 1000));
    times[rank].push_back(meter.time_of_copy(4096));
  });
  for (const Timing& time : times[0]) EXPECT_GT(time.seconds, 0);
  EXPECT_EQ(times[1], times[0]);
  EXPECT_EQ(times[2], times[0]);
}

TEST(Meter, moves_the_bytes_that_it_was_asked_for_as_often_as_it_must) {
  const auto world = make_local_world(2);
  CountedWorld counted(*world);
  on_threads(*world, [&](int rank) {
    Meter meter(counted, rank, 4096, {.seconds = 0, .repeats = 9});
    meter.time(Kind::permute, std::vector{0, 1}, 4096);
  });
  EXPECT_EQ(counted.bytes_into_permutes, 4096);
  // For each rank and batch: a meeting, at least one operation, and the slowest time.
  EXPECT_GE(counted.operations, 2 * 9 * 3);
}

TEST(Meter, writes_operands_before_each_collective_if_asked) {
  for (bool writes : {true, false})
    for (Kind kind : {Kind::all_reduce, Kind::reduce_scatter, Kind::broadcast, Kind::send}) {
      SCOPED_TRACE(name_of(kind));
      const auto world = make_local_world(3);
      CountedWorld counted(*world);
      std::array<Timing, 3> times;
      on_threads(*world, [&](int rank) {
        Meter meter(counted, rank, 4096, {.seconds = 0}, writes);
        times[static_cast<size_t>(rank)] = meter.time(kind, std::vector{0, 1, 2}, 4096);
      });
      EXPECT_GT(times[0].seconds, 0);
      EXPECT_EQ(times[1], times[0]);
      EXPECT_EQ(times[2], times[0]);
      EXPECT_EQ(counted.unwritten == 0, writes);
    }
}

// The kernel only counts; a world that says nothing of ends does not keep it computing.
TEST(Meter, finds_one_slowdown_on_all_ranks) {
  for (bool in_background : {true, false}) {
    const auto world = make_local_world(3);
    std::array<Slowdown, 3> found;
    std::atomic<int64_t> kernels = 0;
    on_threads(*world, [&](int rank) {
      Meter meter(*world, rank, 4096, {.seconds = 0});
      found[static_cast<size_t>(rank)] = meter.slowdown([&] { ++kernels; }, 4096, in_background);
    });
    EXPECT_GT(kernels, 0);
    for (const Slowdown& each : found) {
      EXPECT_GE(each.computation, 1);
      EXPECT_GE(each.communication, 1);
      EXPECT_EQ(each.computation, found[0].computation);
      EXPECT_EQ(each.communication, found[0].communication);
    }
  }
}

TEST(SlowestMedian, repeats_slow_batches_less_often) {
  const auto times_of = [](double seconds) {
    int times = 0;
    slowest_median(
        {.seconds = 0, .repeats = 5}, [&] { ++times; }, [] {}, [&](double) { return seconds; });
    return times;
  };
  EXPECT_EQ(times_of(0.1), 2 + 2 * 5);
  EXPECT_EQ(times_of(0.2), 2 + 2 * 3);
  EXPECT_EQ(times_of(3), 2 + 2 * 1);
}

/// What is timed, where each time is 1 s but those in `slow`, from the first on, that take longer.
Timing timing_of(const std::vector<double>& batches) {
  size_t batch = 0;
  auto next = [&](double) { return batches[std::min(batch++, batches.size() - 1)]; };
  return slowest_median(
      {.seconds = 1, .repeats = 1}, [] {}, [] {}, next);
}

// The first two are for warming up and to find how many make a batch.
TEST(SlowestMedian, repeats_rounds_until_two_agree_and_takes_the_fastest) {
  EXPECT_EQ(timing_of({1, 1, 1}), (Timing{1, 0}));
  EXPECT_EQ(timing_of({1, 1, 1.5, 2, 1, 1}), (Timing{1, 1})) << "1.5, 2 and 1 do not agree, 1 and 1 do";
  EXPECT_EQ(timing_of({1, 1, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1}), (Timing{1, 1})) << "which ends, too";
}

}  // namespace
}  // namespace tessera::comm
