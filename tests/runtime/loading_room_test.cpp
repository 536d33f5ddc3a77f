#include "tessera/runtime/loading_room.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

namespace tessera::runtime {
namespace {

using std::chrono::milliseconds;

class LoadingRoomTest : public testing::Test {
 protected:
  /// What a rank does that packs a weight: it holds 20 bytes for a while, of which 10 stay.
  std::shared_ptr<const void> pack() {
    const LoadingRoom::Scope loading = room_.load();
    LoadingRoom::Reservation reserved(room_, 20);
    auto stays = limit_.hold(10, "packed");
    reserved.use(10);
    const auto goes = limit_.hold(10, "plain");
    reserved.use(10);
    {
      const std::lock_guard lock(mutex_);
      most_ = std::max(most_, limit_.held());
    }
    std::this_thread::sleep_for(milliseconds(5));
    return stays;
  }

  /// The most that four ranks hold, which pack one weight each.
  size_t most_of_four(size_t budget) {
    const LoadingRoom::Scope within = room_.within(limit_);
    room_.set_budget(budget);
    std::vector<std::shared_ptr<const void>> packed(4);
    std::vector<std::thread> ranks;
    for (auto& own : packed) ranks.emplace_back([&] { own = pack(); });
    for (std::thread& rank : ranks) rank.join();
    EXPECT_EQ(limit_.held(), 40u);
    return most_;
  }

  device::MemoryLimit limit_{1000};
  LoadingRoom room_;
  std::mutex mutex_;
  size_t most_ = 0;
};

TEST_F(LoadingRoomTest, lets_ranks_hold_as_much_as_is_planned) {
  EXPECT_LE(most_of_four(50), 50u);
}

TEST_F(LoadingRoomTest, lets_all_go_on_where_there_is_room) {
  std::atomic<int> arrived = 0;
  const LoadingRoom::Scope within = room_.within(limit_);
  room_.set_budget(40);
  const auto rank = [&] {
    const LoadingRoom::Scope loading = room_.load();
    const LoadingRoom::Reservation reserved(room_, 20);
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  };
  std::thread first(rank), second(rank);
  first.join();
  second.join();
}

TEST_F(LoadingRoomTest, never_waits_for_ever) {
  EXPECT_LE(most_of_four(5), 50u) << "one after the other";
}

TEST_F(LoadingRoomTest, hears_of_memory_that_is_released_elsewhere) {
  auto elsewhere = limit_.hold(30, "an output");
  const LoadingRoom::Scope within = room_.within(limit_), own = room_.load(), other = room_.load();
  room_.set_budget(40);
  auto rank = std::async(std::launch::async, [&] { const LoadingRoom::Reservation reserved(room_, 20); });
  EXPECT_EQ(rank.wait_for(milliseconds(20)), std::future_status::timeout) << "30 and 20 bytes are more than 40";
  elsewhere.reset();
  EXPECT_EQ(rank.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  room_.set_budget(1000);  // lets it end
}

TEST_F(LoadingRoomTest, goes_on_when_the_others_wait_for_something_else) {
  const LoadingRoom::Scope within = room_.within(limit_), own = room_.load(), other = room_.load();
  room_.set_budget(5);
  std::atomic<bool> is_reserved = false;
  std::thread rank([&] {
    const LoadingRoom::Reservation reserved(room_, 20);
    is_reserved = true;
  });
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_FALSE(is_reserved) << "the other rank may let go of something";
  {
    const LoadingRoom::Scope paused = room_.pause();
    rank.join();
  }
  EXPECT_TRUE(is_reserved);
}

}  // namespace
}  // namespace tessera::runtime
