// Ranks that are processes and share memory.
#include <gmock/gmock.h>
#include <signal.h>

#include "run_on_processes.h"
#include "tessera/comm/local/free_ranges.h"
#include "tessera/comm/local/shared_region.h"

namespace tessera::comm {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

// ThreadSanitizer keeps for itself the addresses where ranks share memory.
#ifndef TESSERA_THREAD_SANITIZER

TEST(SharedWorld, takes_buffers_of_its_own_memory_and_of_any_other) {
  run_on_processes(3, {}, [](World& world, int rank) {
    auto group = world.join(rank, everyone(3));
    EXPECT_EQ(world.local_ranks(), std::vector{rank});
    constexpr int64_t kCount = 100'000;
    auto shared = world.allocate(rank, kCount * sizeof(float), "a test");
    auto* inside = reinterpret_cast<float*>(shared.get());
    std::vector<float> outside(kCount);
    for (int round = 0; round < 4; ++round) {
      float* in = round & 1 ? inside : outside.data();
      float* out = round & 2 ? inside : outside.data();
      std::fill_n(in, kCount, static_cast<float>(rank + round));
      group->run({.kind = Kind::all_reduce, .in = in, .out = out, .count = kCount});
      EXPECT_EQ(std::count(out, out + kCount, static_cast<float>(3 + 3 * round)), kCount) << round;
    }
  });
}

TEST(SharedWorld, an_abort_ends_the_waits_of_all_others_with_its_message) {
  auto errors = errors_of_processes(3, {}, [](World& world, int rank) {
    auto group = world.join(rank, everyone(3));
    if (rank == 2) return world.abort(rank, "the disk is full");
    group->run({.kind = Kind::barrier});
  });
  for (int rank : {0, 1}) EXPECT_THAT(errors[rank], HasSubstr("rank 2 ended the run: the disk is full"));
}

TEST(SharedWorld, who_is_no_rank_may_end_the_run) {
  const int memory = create_shared_memory(1);
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    int code = 1;
    try {
      auto world = make_shared_world(memory, 0);
      float element = 0;
      world->join(0, std::vector{0})->run({.kind = Kind::recv, .out = &element, .count = 1, .from = 0});
    } catch (const std::exception& error) {
      code = std::string(error.what()) == "[comm] enough" ? 0 : 2;
    }
    _exit(code);
  }
  auto watcher = make_shared_world(memory, -1);
  close(memory);
  EXPECT_TRUE(watcher->local_ranks().empty());
  std::this_thread::sleep_for(milliseconds(30));
  watcher->abort(-1, "enough");
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(SharedWorld, a_rank_that_is_killed_is_named_at_the_timeout) {
  auto errors = errors_of_processes(3, {.timeout = milliseconds(200)}, [](World& world, int rank) {
    auto group = world.join(rank, everyone(3));
    group->run({.kind = Kind::barrier});
    if (rank == 1) return;
    group->run({.kind = Kind::barrier, .label = "last"});
  });
  for (int rank : {0, 2}) EXPECT_THAT(errors[rank], AllOf(HasSubstr("'last'"), HasSubstr("missing: rank 1")));
}

TEST(SharedRegion, gives_memory_back_and_uses_it_again) {
  const int file = SharedRegion::create(2);
  auto region = std::make_unique<SharedRegion>(file, 1);
  close(file);
  auto first = region->allocate(1, 3 << 20, "a test");
  std::byte* address = first.get();
  std::fill_n(address, 3 << 20, std::byte{7});
  EXPECT_TRUE(region->holds(address));
  EXPECT_FALSE(region->holds(&file));
  first.reset();
  auto again = region->allocate(1, 2 << 20, "a test");
  EXPECT_EQ(again.get(), address);
  EXPECT_EQ(again[0], std::byte{0}) << "its pages went back to the system";
  region.reset();
  again[0] = std::byte{1};  // what is allocated outlives the region
  EXPECT_THROW(SharedRegion(STDIN_FILENO, 0), std::exception);
}

#endif

TEST(FreeRanges, joins_what_comes_back) {
  FreeRanges ranges(100, 200);
  EXPECT_EQ(ranges.take(40), 100u);
  EXPECT_EQ(ranges.take(40), 140u);
  EXPECT_EQ(ranges.take(40), std::nullopt);
  EXPECT_EQ(ranges.take(20), 180u);
  ranges.give_back(140, 40);
  ranges.give_back(180, 20);
  ranges.give_back(100, 40);
  EXPECT_EQ(ranges.count(), 1u);
  EXPECT_EQ(ranges.take(100), 100u);
}

}  // namespace
}  // namespace tessera::comm
