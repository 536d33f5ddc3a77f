#include "tessera/base/shared_vector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(SharedVector, shares_its_buffer_until_a_copy_changes) {
  const SharedVector<int> first = {1, 2, 3};
  SharedVector<int> second = first;
  EXPECT_EQ(second.identity(), first.identity());
  second[1] = 7;
  EXPECT_NE(second.identity(), first.identity());
  EXPECT_THAT(first, ElementsAre(1, 2, 3));
  EXPECT_THAT(second, ElementsAre(1, 7, 3));
}

TEST(SharedVector, keeps_a_buffer_that_is_its_own) {
  SharedVector<int> list = {1};
  const void* buffer = list.identity();
  list.front() = 2;
  EXPECT_EQ(list.identity(), buffer);
}

TEST(SharedVector, changes_like_a_vector) {
  SharedVector<int> list;
  EXPECT_THAT(list, IsEmpty());
  EXPECT_EQ(list.begin(), list.end());
  list.push_back(2);
  list.emplace_back(4);
  const SharedVector<int> before = list;
  list.insert(list.begin() + 1, 3);
  list.insert(std::as_const(list).begin(), 1);
  EXPECT_THAT(list, ElementsAre(1, 2, 3, 4));
  list.erase(list.begin());
  list.back() = 5;
  EXPECT_THAT(list, ElementsAre(2, 3, 5));
  list.resize(1);
  EXPECT_EQ(list, SharedVector<int>{2});
  list.clear();
  EXPECT_EQ(list, SharedVector<int>());
  EXPECT_THAT(before, ElementsAre(2, 4));
}

// For ThreadSanitizer: only the vector itself orders the reader's accesses before the change.
TEST(SharedVector, may_change_once_another_thread_has_let_go) {
  SharedVector<int> list = {1, 2, 3};
  std::atomic<int> seen = 0;
  std::thread reader([&seen, copy = list]() mutable {
    const int front = std::as_const(copy).front();
    copy.clear();
    seen.store(front, std::memory_order_relaxed);
  });
  while (seen.load(std::memory_order_relaxed) == 0) std::this_thread::yield();
  const void* buffer = list.identity();
  list.front() = 4;
  EXPECT_EQ(list.identity(), buffer);
  EXPECT_THAT(list, ElementsAre(4, 2, 3));
  reader.join();
}

TEST(SharedVector, compares_elements) {
  EXPECT_EQ((SharedVector<int>{1, 2}), (SharedVector<int>{1, 2}));
  EXPECT_FALSE((SharedVector<int>{1, 2}) == (SharedVector<int>{1, 3}));
  EXPECT_FALSE((SharedVector<int>{1}) == SharedVector<int>());
}

}  // namespace
}  // namespace tessera
