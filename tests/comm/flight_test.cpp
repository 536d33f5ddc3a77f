// The ranks' notes of their communications, and the ranks that a timeout blames.
#include "tessera/comm/flight.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <future>
#include <map>
#include <thread>

#include "run_on_processes.h"
#include "run_on_threads.h"
#include "tessera/comm/local/fabric.h"

namespace tessera::comm {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Flight, holds_the_last_communications) {
  auto world = make_local_world(1);
  const std::vector<int> alone = {0};
  auto group = recorded(world->join(0, alone), *world->flight(0), "tp", alone);
  std::vector<float> element(1);
  for (int i = 0; i < 70; ++i) group->run({.kind = Kind::barrier});
  group->run({.kind = Kind::all_reduce, .in = element.data(), .out = element.data(), .count = 1, .label = "grad.w"});
  const Ticket open = group->start({.kind = Kind::recv, .out = element.data(), .count = 1, .from = -1});
  const FlightLog log = log_of(0, *world->flight(0));
  EXPECT_EQ(log.before, 72 - Flight::kEntries);
  ASSERT_EQ(log.entries.size(), Flight::kEntries);
  const FlightEntry &sum = log.entries[Flight::kEntries - 2], &last = log.entries.back();
  EXPECT_EQ(sum.kind, Kind::all_reduce);
  EXPECT_EQ(sum.number, 71u);
  EXPECT_EQ(sum.bytes, 4u);
  EXPECT_STREQ(sum.value.data(), "grad.w");
  EXPECT_STREQ(sum.axes.data(), "tp");
  EXPECT_STREQ(sum.group.data(), "{0}");
  EXPECT_LE(sum.started, sum.finished);
  EXPECT_EQ(last.number, 1u) << "messages count by themselves";
  EXPECT_EQ(last.finished, 0);
  group->wait(open);
  EXPECT_GT(log_of(0, *world->flight(0)).entries.back().finished, 0);
}

// Each operation ends as it began, also if more than kEntries of another thread begin meanwhile.
TEST(Flight, is_written_by_several_threads_of_a_rank) {
  auto world = make_local_world(1);
  const std::vector<int> alone = {0};
  constexpr int kThreads = 4, kOperations = 2000;
  std::vector<std::unique_ptr<Communicator>> groups;
  for (int t = 0; t < kThreads; ++t)
    groups.push_back(
        recorded(world->join(0, alone), *world->flight(0), std::string(1, static_cast<char>('a' + t)), alone, true));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kOperations; ++i) groups[t]->run({.kind = Kind::barrier});
    });
  for (std::thread& thread : threads) thread.join();
  const FlightLog log = log_of(0, *world->flight(0));
  EXPECT_EQ(log.before, kThreads * kOperations - Flight::kEntries);
  std::map<std::string, uint64_t> last;
  for (const FlightEntry& entry : log.entries) {
    EXPECT_GT(entry.finished, 0);
    uint64_t& before = last[entry.axes.data()];
    if (before > 0) {
      EXPECT_EQ(entry.number, before + 1) << entry.axes.data();
    }
    before = entry.number;
  }
}

TEST(Flight, keeps_the_operator_that_a_rank_has_failed_in) {
  Flight flight;
  {
    const std::string name = "MatMul 'h.3'";
    flight.step = name.c_str();
    EXPECT_EQ(log_of(0, flight).step, name);
    flight.give_up();
  }
  EXPECT_EQ(log_of(0, flight).step, "MatMul 'h.3'");
}

// 0 waits for 1, which waits for 2, which computes.
TEST(Blame, falls_on_the_rank_that_waits_for_nobody) {
  auto world = make_local_world(3, {.timeout = milliseconds(300)});
  const auto errors = errors_of_threads(*world, [](World& world, int rank) {
    const std::vector<int> left = {0, 1}, right = {1, 2};
    world.join(rank, everyone(3))->run({.kind = Kind::barrier});
    if (rank == 0) world.join(rank, left)->run({.kind = Kind::barrier});
    if (rank == 1) {
      std::this_thread::sleep_for(milliseconds(100));  // so that rank 0 gives up first
      world.join(rank, right)->run({.kind = Kind::barrier, .label = "late"});
    }
    if (rank != 2) return;
    world.flight(rank)->step = "MatMul 'h.3'";
    std::this_thread::sleep_for(milliseconds(500));
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("missing: rank 1"),
                               HasSubstr("rank 1 waits for rank 2 at barrier 'late', #1 of group {1,2}"),
                               HasSubstr("rank 2 waits for nobody and is in MatMul 'h.3'")));
  EXPECT_THAT(errors[1], HasSubstr("rank 0 ended the run")) << "all have the same reason";
}

// As above, but rank 1 has two threads that wait, as queues of a device do. One of them ends its wait; what it waited
// for hides nothing of the other's.
TEST(Blame, knows_the_waits_of_several_threads) {
  auto world = make_local_world(3, {.timeout = milliseconds(600)});
  const auto errors = errors_of_threads(*world, [](World& world, int rank) {
    const std::vector<int> left = {0, 1}, right = {1, 2};
    std::unique_ptr<Communicator> first, second, late;
    if (rank < 2) first = world.join(rank, left), second = world.join(rank, left);
    if (rank > 0) late = world.join(rank, right);
    world.join(rank, everyone(3))->run({.kind = Kind::barrier});
    std::future<void> other;
    if (rank == 0) {
      other = std::async(std::launch::async, [&] { first->run({.kind = Kind::barrier}); });
      std::this_thread::sleep_for(milliseconds(300));
      second->run({.kind = Kind::barrier});
    }
    if (rank == 1) {
      std::this_thread::sleep_for(milliseconds(100));  // so that rank 0 gives up first
      other = std::async(std::launch::async, [&] { late->run({.kind = Kind::barrier, .label = "late"}); });
      std::this_thread::sleep_for(milliseconds(100));
      second->run({.kind = Kind::barrier});
    }
    if (rank < 2) return other.get();
    world.flight(rank)->step = "MatMul 'h.3'";
    std::this_thread::sleep_for(milliseconds(900));
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("missing: rank 1"),
                               HasSubstr("rank 1 waits for rank 2 at barrier 'late', #1 of group {1,2}"),
                               HasSubstr("rank 2 waits for nobody and is in MatMul 'h.3'")));
}

TEST(Blame, does_not_look_for_a_peer_outside_of_the_group) {
  Fabric fabric(2, {});
  Group& group = fabric.group_of(0, everyone(2));
  WaitNote own;
  own.group = &group;
  own.number = 1;
  own.peer = 1;
  own.looked = steady_nanoseconds();
  WaitNote& mixed = fabric.station(1).waits[0];  // read while one wait of the rank follows another
  mixed.group = &group;
  mixed.number = 1;
  mixed.peer = 7;
  mixed.looked = steady_nanoseconds();
  EXPECT_THAT(fabric.blame(0, own), HasSubstr("rank 1 waits for nobody"));
}

TEST(Blame, sees_a_circle) {
  auto world = make_local_world(2, {.timeout = milliseconds(300)});
  const auto errors = errors_of_threads(*world, [](World& world, int rank) {
    auto group = world.join(rank, everyone(2));
    float element = 0;
    group->run({.kind = Kind::barrier});
    if (rank == 1) std::this_thread::sleep_for(milliseconds(100));
    group->run({.kind = Kind::recv, .out = &element, .count = 1, .from = 1 - rank});
  });
  // On a busy machine, either may give up first.
  EXPECT_THAT(errors[0], AllOf(testing::AnyOf(HasSubstr("rank 1 waits for rank 0 at message #1 with rank 0"),
                                              HasSubstr("rank 0 waits for rank 1 at message #1 with rank 1")),
                               HasSubstr("they wait for one another in a cycle")));
}

// All have arrived, but one does not reach its part of the work.
TEST(Blame, falls_on_a_member_that_has_come_and_does_not_go_on) {
  auto world = make_local_world(3, {.timeout = milliseconds(300)});
  std::vector<std::vector<float>> in(3, std::vector<float>(9000)), out = in;
  const std::vector<int64_t> counts(3, 3000);
  const auto errors = errors_of_threads(*world, [&](World& world, int rank) {
    auto group = world.join(rank, everyone(3));
    const Ticket ticket =
        group->start({.kind = Kind::reduce_scatter, .in = in[rank].data(), .out = out[rank].data(), .counts = counts});
    if (rank == 1) std::this_thread::sleep_for(milliseconds(600));
    group->wait(ticket);
  });
  for (int rank : {0, 2}) {
    EXPECT_THAT(errors[rank], HasSubstr("rank 1 waits for nobody"));
    EXPECT_THAT(errors[rank], testing::Not(HasSubstr("rank 2 waits for nobody")));
  }
}

#ifndef TESSERA_THREAD_SANITIZER

// Rank 1 is stopped in the middle of a wait: it no longer counts as waiting.
TEST(Blame, falls_on_a_process_that_is_stopped_while_it_waits) {
  const auto errors = errors_of_processes(3, {.timeout = milliseconds(1000)}, [](World& world, int rank) {
    auto group = world.join(rank, everyone(3));
    int64_t process = getpid();
    const Operation message{.dtype = DType::int64, .in = &process, .out = &process, .count = 1};
    Operation sends = message, receives = message;
    sends.kind = Kind::send, receives.kind = Kind::recv;
    if (rank == 0) world.join(rank, std::vector{0, 1})->run({.kind = Kind::barrier});
    if (rank == 1) {
      sends.to = receives.from = 2;
      group->run(sends);
      group->run(receives);  // never comes
    }
    if (rank == 2) {
      receives.from = 1;
      group->run(receives);
      std::this_thread::sleep_for(milliseconds(50));
      kill(static_cast<pid_t>(process), SIGSTOP);
      std::this_thread::sleep_for(milliseconds(1500));
      kill(static_cast<pid_t>(process), SIGCONT);
    }
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 1 waits for nobody"));
  EXPECT_THAT(errors[1], HasSubstr("rank 0 ended the run"));
}

#endif

}  // namespace
}  // namespace tessera::comm
