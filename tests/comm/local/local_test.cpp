#include <gmock/gmock.h>

#include <atomic>
#include <chrono>

#include "comm/run_on_threads.h"

namespace tessera::comm {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(LocalWorld, nobody_leaves_a_barrier_before_all_have_come) {
  std::atomic<int> come{0};
  run_on_threads(4, {}, [&](World& world, int rank) {
    auto group = world.join(rank, everyone(4));
    Dawdle dawdle(rank);
    for (int round = 1; round <= 50; ++round) {
      dawdle();
      come.fetch_add(1);
      group->run({.kind = Kind::barrier});
      EXPECT_GE(come.load(), 4 * round);
      group->run({.kind = Kind::barrier});
      EXPECT_LE(come.load(), 4 * (round + 1));
    }
  });
}

TEST(LocalWorld, a_permutation_waits_for_its_neighbours_only) {
  std::vector<float> in(5000, 3), out(5000);
  std::atomic<bool> exchanged{false};
  run_on_threads(3, {}, [&](World& world, int rank) {
    auto group = world.join(rank, everyone(3));
    Operation permute{.kind = Kind::permute, .in = in.data(), .count = 5000};
    if (rank == 0) permute.to = 1;
    if (rank == 1) permute.from = 0, permute.out = out.data();
    std::vector<float> zeros(5000);
    if (rank != 1) permute.out = zeros.data();
    // Rank 2 comes only after the others are through.
    if (rank == 2) exchanged.wait(false);
    group->run(permute);
    if (rank == 1) exchanged = true, exchanged.notify_all();
  });
  EXPECT_EQ(out, in);
}

TEST(LocalWorld, a_lagging_member_holds_permutations_of_the_others_up_without_mixing_them) {
  constexpr int kRounds = 200;  // several times what may be in flight
  run_on_threads(3, {}, [&](World& world, int rank) {
    auto group = world.join(rank, everyone(3));
    if (rank == 2) std::this_thread::sleep_for(milliseconds(50));
    for (float round = 0; round < kRounds; ++round) {
      std::vector<float> in(5000, 10 * round + rank), out(5000, -1);
      Operation permute{.kind = Kind::permute, .in = in.data(), .out = out.data(), .count = 5000};
      if (rank < 2) permute.to = permute.from = 1 - rank;
      group->run(permute);
      EXPECT_THAT(out, Each(rank == 2 ? 0 : 10 * round + 1 - rank));
    }
  });
}

TEST(LocalWorld, a_large_all_reduce_needs_no_member_that_has_come_to_run) {
  std::vector<std::vector<float>> in(3, std::vector<float>(100'000, 1)), out(3, std::vector<float>(100'000));
  std::atomic<bool> reduced{false};
  auto world = make_local_world(3, {.timeout = milliseconds(2000)});
  auto errors = errors_of_threads(*world, [&](World&, int rank) {
    auto group = world->join(rank, everyone(3));
    Ticket ticket =
        group->start({.kind = Kind::all_reduce, .in = in[rank].data(), .out = out[rank].data(), .count = 100'000});
    if (rank > 0) reduced.wait(false);
    try {
      group->wait(ticket);
    } catch (...) {
      reduced = true, reduced.notify_all();
      throw;
    }
    reduced = true, reduced.notify_all();
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_THAT(out, Each(Each(3.0F)));
}

TEST(LocalWorld, an_abort_ends_the_waits_of_all_others_with_its_message) {
  auto world = make_local_world(4);
  std::vector<std::vector<float>> buffers(4, std::vector<float>(5000));
  auto start = std::chrono::steady_clock::now();
  auto errors = errors_of_threads(*world, [&](World&, int rank) {
    auto group = world->join(rank, everyone(4));
    auto pair = world->join(rank, std::vector{rank / 2 * 2, rank / 2 * 2 + 1});
    if (rank == 2) {
      std::this_thread::sleep_for(milliseconds(50));
      return world->abort(rank, "the disk is full");
    }
    if (rank == 3) pair->run({.kind = Kind::recv, .out = buffers[rank].data(), .count = 5000, .from = 0});
    group->run({.kind = Kind::all_reduce, .in = buffers[rank].data(), .out = buffers[rank].data(), .count = 5000});
  });
  EXPECT_LT(seconds_since(start), 1.0);
  for (int rank : {0, 1, 3}) EXPECT_THAT(errors[rank], HasSubstr("rank 2 ended the run: the disk is full"));
  EXPECT_EQ(errors[2], "");
  auto late = errors_of_threads(*world, [&](World&, int rank) {
    world->abort(rank, "a second reason");
    world->join(rank, everyone(4))->run({.kind = Kind::barrier});
  });
  EXPECT_THAT(late, Each(HasSubstr("the disk is full")));
}

TEST(LocalWorld, a_timeout_names_who_has_come_and_who_has_not) {
  auto world = make_local_world(3, {.timeout = milliseconds(100)});
  std::vector<std::vector<float>> buffers(3, std::vector<float>(5000));
  auto errors = errors_of_threads(*world, [&](World&, int rank) {
    auto group = world->join(rank, std::vector{2, 0, 1});
    group->run({.kind = Kind::barrier});
    if (rank == 1) return;
    group->run({.kind = Kind::all_reduce,
                .in = buffers[rank].data(),
                .out = buffers[rank].data(),
                .count = 5000,
                .label = "grad.w"});
  });
  for (int rank : {0, 2})
    EXPECT_THAT(errors[rank], AllOf(HasSubstr("all_reduce sum float32[5000] 'grad.w' (#2 of group {2,0,1})"),
                                    HasSubstr("missing: rank 1; arrived: ranks 2,0")));
}

TEST(LocalWorld, ranks_may_come_together_later_than_they_may_wait_for_each_other_then) {
  for (const bool joins : {true, false}) {
    auto world = make_local_world(2, {.timeout = milliseconds(100), .join_timeout = milliseconds(10'000)});
    const auto errors = errors_of_threads(*world, [&](World&, int rank) {
      auto group = world->join(rank, everyone(2));
      if (rank == 1) std::this_thread::sleep_for(milliseconds(400));
      group->run({.kind = Kind::barrier, .joins = joins});
    });
    EXPECT_EQ(errors[0].empty(), joins) << errors[0];
  }
}

TEST(LocalWorld, a_timeout_names_the_sender_that_is_missing) {
  auto world = make_local_world(2, {.timeout = milliseconds(100)});
  auto errors = errors_of_threads(*world, [&](World&, int rank) {
    float element = 0;
    auto group = world->join(rank, everyone(2));
    if (rank == 1) group->run({.kind = Kind::recv, .out = &element, .count = 1, .from = 0, .label = "kv"});
  });
  EXPECT_THAT(errors[1], AllOf(HasSubstr("recv float32[1] from 0 'kv'"), HasSubstr("rank 0 has not sent message #1")));
}

TEST(LocalWorld, a_full_group_times_out_too) {
  auto world = make_local_world(2, {.timeout = milliseconds(100)});
  auto errors = errors_of_threads(*world, [&](World&, int rank) {
    auto group = world->join(rank, everyone(2));
    for (int i = 0; rank == 0 && i < 100; ++i) group->start({.kind = Kind::barrier});
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("could not start"), HasSubstr("missing at #1: rank 1")));
}

/// The errors of three ranks that run `operations[rank]` together. Buffers outlive the run, whoever throws first.
std::vector<std::string> disagree(std::vector<Operation> operations) {
  auto world = make_local_world(static_cast<int>(operations.size()));
  std::vector<std::vector<float>> in(operations.size(), std::vector<float>(9000)), out = in;
  return errors_of_threads(*world, [&](World&, int rank) {
    Operation operation = operations[rank];
    operation.in = in[rank].data();
    operation.out = out[rank].data();
    world->join(rank, everyone(world->size()))->run(operation);
  });
}

TEST(LocalWorld, different_operations_in_one_place_are_an_error_on_all) {
  Operation sum{.kind = Kind::all_reduce, .count = 3000, .label = "a"};
  auto with = [&](auto change) {
    Operation other = sum;
    change(other);
    return disagree({sum, sum, other});
  };
  EXPECT_THAT(with([](Operation& other) { other.kind = Kind::reduce; }),
              Each(AllOf(HasSubstr("ranks 0 and 2 disagree on operation #1 of group {0,1,2}"),
                         HasSubstr("rank 0 has all_reduce sum float32[3000] 'a'"),
                         HasSubstr("rank 2 has reduce sum float32[3000] root 0 'a'"))));
  EXPECT_THAT(with([](Operation& other) { other.dtype = DType::int32; }), Each(HasSubstr("int32[3000]")));
  EXPECT_THAT(with([](Operation& other) { other.reduction = Reduction::max; }), Each(HasSubstr("max")));
  EXPECT_THAT(with([](Operation& other) { other.count = 5; }), Each(HasSubstr("float32[5]")));
  EXPECT_THAT(with([](Operation& other) { other.kind = Kind::permute, other.to = other.from = 0; }),
              Each(HasSubstr("rank 2 ")));
}

TEST(LocalWorld, different_roots_or_counts_are_an_error_on_all) {
  Operation broadcast{.kind = Kind::broadcast, .count = 10, .root = 0}, other = broadcast;
  other.root = 1;
  EXPECT_THAT(disagree({broadcast, other}), Each(AllOf(HasSubstr("root 0"), HasSubstr("root 1"))));

  std::vector<int64_t> even{2, 2}, uneven{3, 1};
  Operation gather{.kind = Kind::all_gather, .counts = even}, cut = gather;
  cut.counts = uneven;
  EXPECT_THAT(disagree({gather, cut}), Each(AllOf(HasSubstr("2+2"), HasSubstr("3+1"))));

  Operation exchange{.kind = Kind::all_to_all, .counts = even, .recv_counts = even}, less = exchange;
  less.recv_counts = uneven;
  EXPECT_THAT(disagree({exchange, less}), Each(AllOf(HasSubstr("recv 2,2"), HasSubstr("recv 3,1"))));
}

TEST(LocalWorld, neighbours_that_do_not_mean_each_other_are_an_error) {
  Operation first{.kind = Kind::permute, .count = 4, .to = 1, .from = 1}, second = first;
  second.to = second.from = 0;
  second.count = 5;
  EXPECT_THAT(disagree({first, second}), Each(AllOf(HasSubstr("float32[4]"), HasSubstr("float32[5]"))));
}

TEST(LocalWorld, a_message_of_another_size_than_expected_is_an_error) {
  Operation send{.kind = Kind::send, .count = 4, .to = 1}, recv{.kind = Kind::recv, .count = 5, .from = 0};
  EXPECT_THAT(disagree({send, recv})[1],
              AllOf(HasSubstr("rank 0 has send float32[4] to 1"), HasSubstr("rank 1 has recv float32[5] from 0")));
}

}  // namespace
}  // namespace tessera::comm
