#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <memory>
#include <thread>

#include "backend.h"
#include "tessera/base/error.h"
#include "trial.h"

/// The tests that every backend must pass. Include this in one file of a test program and instantiate it there; see
/// backend_test.cpp.
namespace tessera::comm {

/// The body's exception, which must be of that kind; "" if there is none.
template <typename Body>
std::string error_of(Body body, ErrorKind kind = ErrorKind::running) {
  try {
    body();
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
}

constexpr std::array kCollectives = {Kind::all_reduce, Kind::all_gather, Kind::reduce_scatter,
                                     Kind::all_to_all, Kind::broadcast,  Kind::reduce,
                                     Kind::gather,     Kind::scatter,    Kind::permute};
constexpr std::array kReductions = {Reduction::sum, Reduction::max, Reduction::min, Reduction::mean};
constexpr std::array<int64_t, 5> kSizes = {0, 1, 7, 1000, 100'000};

class BackendSuite : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override { Trial::whole_numbers = !GetParam().member_order; }
  void on_ranks(int ranks, const RankBody& body) { GetParam().on_ranks(ranks, body); }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BackendSuite);

TEST_P(BackendSuite, every_kind_and_size_gives_the_serial_result) {
  for (int ranks = 1; ranks <= 6; ++ranks)
    on_ranks(ranks, [&](World& world, int rank) {
      auto group = world.join(rank, everyone(ranks));
      Dawdle dawdle(rank);
      uint64_t seed = test_seed();
      for (int64_t size : kSizes)
        for (Kind kind : kCollectives)
          for (int round = 0; round < (size > 10'000 ? 1 : 3); ++round) {
            dawdle();
            Running running(*group, {.kind = kind, .size = size, .seed = ++seed});
            dawdle();
            running.finish();
          }
    });
}

TEST_P(BackendSuite, every_type_and_reduction_has_the_same_bits_as_in_member_order) {
  on_ranks(5, [](World& world, int rank) {
    auto group = world.join(rank, everyone(5));
    uint64_t seed = test_seed();
    for (DType dtype :
         {DType::float32, DType::float64, DType::float16, DType::bfloat16, DType::int8, DType::int16, DType::int32,
          DType::int64, DType::uint8, DType::uint16, DType::uint32, DType::uint64, DType::boolean})
      for (Reduction reduction : kReductions)
        for (Kind kind : {Kind::all_reduce, Kind::reduce_scatter, Kind::reduce})
          for (int64_t size : {13, 5003}) {
            if (dtype == DType::boolean && reduction == Reduction::mean) continue;
            Trial trial{.kind = kind, .size = size, .seed = ++seed, .dtype = dtype, .reduction = reduction};
            Running(*group, trial).finish();
          }
  });
}

TEST_P(BackendSuite, sums_are_close_and_have_the_same_bits_on_every_member_and_in_every_run) {
  on_ranks(5, [](World& world, int rank) {
    auto group = world.join(rank, everyone(5));
    for (int64_t size : {13, 5003, 300'000}) {
      std::vector<std::vector<float>> inputs;
      for (int member = 0; member < 5; ++member) {
        Bytes bytes = random_elements(DType::float32, size, static_cast<uint64_t>(member) + 1);
        inputs.emplace_back(size);
        std::memcpy(inputs.back().data(), bytes.data(), bytes.size());
      }
      std::vector<float> first(size), again(size), all(5 * size);
      for (std::vector<float>* out : {&first, &again})
        group->run({.kind = Kind::all_reduce, .in = inputs[rank].data(), .out = out->data(), .count = size});
      EXPECT_EQ(first, again);
      const std::vector<int64_t> counts(5, size);
      group->run({.kind = Kind::all_gather, .in = first.data(), .out = all.data(), .counts = counts});
      for (int member = 0; member < 5; ++member)
        EXPECT_TRUE(std::equal(first.begin(), first.end(), all.begin() + member * size)) << "member " << member;
      for (int64_t i = 0; i < size; ++i) {
        double sum = 0, magnitude = 0;
        for (const auto& input : inputs) sum += input[i], magnitude += std::fabs(input[i]);
        ASSERT_NEAR(first[i], sum, 5 * 0x1p-24 * magnitude) << "element " << i << " of " << size;
      }
    }
  });
}

TEST_P(BackendSuite, input_and_output_may_be_one_buffer) {
  on_ranks(4, [](World& world, int rank) {
    auto group = world.join(rank, everyone(4));
    Dawdle dawdle(rank);
    uint64_t seed = test_seed();
    for (int64_t size : kSizes)
      for (Kind kind : {Kind::all_reduce, Kind::reduce, Kind::broadcast})
        for (DType dtype : {DType::float32, DType::bfloat16}) {
          dawdle();
          Running(*group, {.kind = kind, .size = size, .seed = ++seed, .dtype = dtype, .in_place = true}).finish();
        }
  });
}

TEST_P(BackendSuite, operations_that_are_tested_meanwhile_give_the_serial_result) {
  on_ranks(3, [](World& world, int rank) {
    auto group = world.join(rank, everyone(3));
    uint64_t seed = test_seed();
    for (int64_t size : {7, 100'000})
      for (Kind kind : kCollectives) {
        Running first(*group, {.kind = kind, .size = size, .seed = ++seed});
        Running second(*group, {.kind = Kind::all_reduce, .size = size, .seed = ++seed});
        for (int look = 0; look < 50; ++look) {
          const bool ended = second.test();
          first.test();
          if (ended) {
            EXPECT_TRUE(second.test()) << "what has ended stays so";
          }
        }
        second.finish();
        first.finish();
      }
  });
}

TEST_P(BackendSuite, many_operations_are_in_flight_and_waited_for_in_any_order) {
  on_ranks(4, [](World& world, int rank) {
    auto group = world.join(rank, everyone(4));
    Dawdle dawdle(rank);
    std::vector<std::unique_ptr<Running>> running;
    for (uint64_t i = 0; i < 100; ++i) {
      Trial trial{.kind = kCollectives[i % kCollectives.size()], .size = i % 3 ? 3000 : 9, .seed = test_seed() + i};
      running.push_back(std::make_unique<Running>(*group, trial));
    }
    std::shuffle(running.begin(), running.end(), dawdle.random());  // another order on every rank
    for (auto& one : running) {
      dawdle();
      one->finish();
    }
  });
}

TEST_P(BackendSuite, rows_and_columns_of_a_mesh_cross_without_mixing) {
  on_ranks(6, [](World& world, int rank) {
    int row = rank / 3, column = rank % 3;
    auto rows = world.join(rank, std::vector{row * 3, row * 3 + 1, row * 3 + 2});
    auto columns = world.join(rank, std::vector{column, column + 3});
    auto all = world.join(rank, std::vector{5, 3, 1, 0, 2, 4});
    Dawdle dawdle(rank);
    EXPECT_EQ(rows->member(), column);
    EXPECT_EQ(columns->member(), row);
    EXPECT_EQ(all->size(), 6);
    uint64_t seed = test_seed();
    for (int round = 0; round < 5; ++round)
      for (Kind kind : kCollectives)
        for (int64_t size : {7, 1000, 5000}) {
          seed += 10;
          Running on_row(*rows, {.kind = kind, .size = size, .seed = seed + row});
          dawdle();
          Running on_all(*all, {.kind = Kind::all_reduce, .size = size, .seed = seed + 2});
          Running on_column(*columns, {.kind = kind, .size = size, .seed = seed + 3 + column});
          dawdle();
          if (rank % 2 == 0) on_row.finish();
          on_column.finish();
          on_all.finish();
          if (rank % 2 == 1) on_row.finish();
        }
  });
}

// As the queues of a device do, each for a set of axes. Ranks get to their groups' operations in different orders.
TEST_P(BackendSuite, threads_of_a_rank_use_a_group_each) {
  on_ranks(6, [](World& world, int rank) {
    const int row = rank / 3, column = rank % 3;
    std::unique_ptr<Communicator> groups[] = {world.join(rank, std::vector{row * 3, row * 3 + 1, row * 3 + 2}),
                                              world.join(rank, std::vector{column, column + 3}),
                                              world.join(rank, everyone(6))};
    std::exception_ptr failures[3];
    std::vector<std::thread> queues;
    for (int queue = 0; queue < 3; ++queue)
      queues.emplace_back([&, queue] {
        try {
          Dawdle dawdle(rank + 10 * queue);
          for (uint64_t i = 0; i < 40; ++i) {
            dawdle();
            const uint64_t seed = test_seed() + i * 10 + (queue == 0 ? row : queue == 1 ? column : 0);
            Running(*groups[queue],
                    {.kind = kCollectives[i % kCollectives.size()], .size = i % 3 ? 5000 : 9, .seed = seed})
                .finish();
          }
        } catch (...) {
          failures[queue] = std::current_exception();
        }
      });
    for (std::thread& queue : queues) queue.join();
    for (const std::exception_ptr& failure : failures)
      if (failure) std::rethrow_exception(failure);
  });
}

TEST_P(BackendSuite, memberships_of_one_group_pair_up_in_order) {
  on_ranks(3, [](World& world, int rank) {
    auto first = world.join(rank, everyone(3));
    auto second = world.join(rank, everyone(3));
    Running on_first(*first, {.kind = Kind::all_reduce, .size = 2000, .seed = test_seed()});
    Running on_second(*second, {.kind = Kind::all_gather, .size = 2000, .seed = test_seed() + 1});
    on_second.finish();
    on_first.finish();
  });
}

TEST_P(BackendSuite, a_send_never_waits_for_its_receiver) {
  on_ranks(2, [](World& world, int rank) {
    auto group = world.join(rank, everyone(2));
    int other = 1 - rank;
    for (int64_t size : kSizes) {
      Bytes theirs = random_elements(DType::float32, size, other + 10);
      Bytes mine = random_elements(DType::float32, size, rank + 10), got(theirs.size());
      // Both send first, ten times: neither could if a send waited.
      for (int i = 0; i < 10; ++i) {
        Bytes leaves = mine;
        group->run({.kind = Kind::send, .in = leaves.data(), .count = size, .to = other, .label = "ping"});
        std::fill(leaves.begin(), leaves.end(), std::byte{});
      }
      for (int i = 0; i < 10; ++i) {
        group->run({.kind = Kind::recv, .out = got.data(), .count = size, .from = other, .label = "ping"});
        EXPECT_TRUE(got == theirs) << size << " elements, message " << i;
      }
    }
  });
}

TEST_P(BackendSuite, messages_arrive_in_the_order_in_which_they_were_sent) {
  on_ranks(3, [](World& world, int rank) {
    auto group = world.join(rank, everyone(3));
    Dawdle dawdle(rank);
    int next = (rank + 1) % 3, previous = (rank + 2) % 3;
    constexpr int64_t kCount = 3000;  // elements, too many for a copy at once
    std::vector<std::vector<int64_t>> sent(40), got(40, std::vector<int64_t>(kCount));
    std::vector<Ticket> tickets;
    for (int64_t i = 0; i < 40; ++i) {
      sent[i].assign(kCount, rank * 100 + i);
      dawdle();
      tickets.push_back(group->start(
          {.kind = Kind::recv, .dtype = DType::int64, .out = got[i].data(), .count = kCount, .from = previous}));
      tickets.push_back(
          group->start({.kind = Kind::send, .dtype = DType::int64, .in = sent[i].data(), .count = kCount, .to = next}));
    }
    std::shuffle(tickets.begin(), tickets.end(), dawdle.random());
    for (Ticket ticket : tickets) group->wait(ticket);
    for (int64_t i = 0; i < 40; ++i) EXPECT_EQ(got[i], std::vector<int64_t>(kCount, previous * 100 + i));
  });
}

TEST_P(BackendSuite, from_and_to_nobody_gives_zeros) {
  on_ranks(2, [](World& world, int rank) {
    auto group = world.join(rank, everyone(2));
    std::vector<float> in{1, 2, 3}, out{7, 7, 7};
    group->run({.kind = Kind::recv, .out = out.data(), .count = 3, .from = -1});
    EXPECT_EQ(out, (std::vector<float>{0, 0, 0}));
    group->run({.kind = Kind::send, .in = in.data(), .count = 3, .to = -1});
    // A shift: rank 0 sends to rank 1, and receives from nobody.
    out = {7, 7, 7};
    group->run({.kind = Kind::permute,
                .in = in.data(),
                .out = out.data(),
                .count = 3,
                .to = rank == 0 ? 1 : -1,
                .from = rank == 0 ? -1 : 0});
    EXPECT_EQ(out, (rank == 0 ? std::vector<float>{0, 0, 0} : in));
  });
}

TEST_P(BackendSuite, messages_pass_between_the_steps_of_a_collective) {
  on_ranks(2, [](World& world, int rank) {
    auto group = world.join(rank, everyone(2));
    float token = 0;
    for (int round = 0; round < 20; ++round) {
      // Rank 1 ends the collective before it sends what rank 0 awaits before it ends the collective.
      Running big(*group, {.kind = Kind::all_reduce, .size = 20'000, .seed = test_seed() + round});
      if (rank == 0) group->run({.kind = Kind::recv, .out = &token, .count = 1, .from = 1});
      big.finish();
      if (rank == 1) group->run({.kind = Kind::send, .in = &token, .count = 1, .to = 0});
    }
  });
}

TEST_P(BackendSuite, impossible_operations_are_refused_at_the_start) {
  on_ranks(1, [](World& world, int rank) {
    auto group = world.join(rank, std::vector{0});
    float element = 0;
    std::vector<int64_t> one{1}, two{1, 1}, negative{-1};
    auto refuses = [&](const Operation& operation, std::string_view why) {
      try {
        group->run(operation);
        ADD_FAILURE() << describe(operation) << " was not refused";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::user);
        EXPECT_NE(std::string_view(error.what()).find(why), std::string_view::npos) << error.what();
      }
    };
    refuses({.kind = Kind::broadcast, .in = &element, .out = &element, .count = 1, .root = 1}, "root 1");
    refuses({.kind = Kind::send, .in = &element, .count = 1, .to = 3}, "receiver is member 3");
    refuses({.kind = Kind::all_gather, .in = &element, .out = &element, .counts = two}, "2 counts for 1 members");
    refuses({.kind = Kind::all_gather, .in = &element, .out = &element, .counts = negative}, "negative");
    refuses({.kind = Kind::all_reduce, .in = &element, .count = 1}, "no output buffer");
    refuses({.kind = Kind::all_reduce, .dtype = DType::int4, .in = &element, .out = &element, .count = 2}, "no sum");
    refuses(
        {.kind = Kind::all_gather, .dtype = DType::int4, .in = &element, .out = &element, .inner = 3, .counts = one},
        "do not fill whole bytes");
    refuses({.kind = Kind::broadcast, .dtype = DType::string, .in = &element, .out = &element, .count = 1},
            "cannot be moved");
    EXPECT_THROW(world.join(rank, std::vector{0, 1}), Error);
    EXPECT_THROW(world.join(rank, std::vector<int>{}), Error);
    EXPECT_THROW(world.join(rank, std::vector{0, 0}), Error);
  });
}

}  // namespace tessera::comm
