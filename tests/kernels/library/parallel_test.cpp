#include "tessera/kernels/cpu/library/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace tessera::kernels {
namespace {

// Whatever a team can be: also more threads than items.
TEST(ForStream, EachItemIsTakenOnce) {
  for (const int threads : {1, 2, 3, 7})
    for (int64_t count = 0; count < 40; ++count) {
      std::vector<std::atomic<int>> taken(static_cast<size_t>(count));
      std::atomic<int64_t> most = 0;
      for_stream(count, parallel_threshold, threads, [&](int64_t item, int64_t member) {
        ++taken.at(static_cast<size_t>(item));
        for (int64_t seen = most; seen < member && !most.compare_exchange_weak(seen, member);) continue;
      });
      EXPECT_LT(most, threads);
      for (int64_t item = 0; item < count; ++item)
        EXPECT_EQ(taken[item], 1) << "item " << item << " of " << count << ", " << threads << " threads";
    }
}

TEST(ShareOut, EachItemIsTakenOnceWhoeverIsLate) {
  for (const int64_t team : {2, 3, 7})
    for (int64_t late = 0; late < team; ++late) {
      constexpr int64_t kItems = 40;
      std::vector<std::atomic<int>> taken(kItems);
      std::atomic<int64_t> of_others = 0;
      share_out(kItems, team, true, [&](int64_t item, int64_t member) {
        ++taken[static_cast<size_t>(item)];
        if (member != late) ++of_others;
        // Its first item lasts until the others have done the rest.
        while (member == late && of_others < kItems - 1) std::this_thread::yield();
      });
      for (const auto& times : taken) EXPECT_EQ(times, 1);
    }
}

TEST(ShareOut, MembersMayKeepToTheirOwn) {
  std::vector<std::atomic<int64_t>> by(10);
  share_out(10, 3, false, [&](int64_t item, int64_t member) { by[static_cast<size_t>(item)] = member; });
  EXPECT_EQ(std::vector<int64_t>(by.begin(), by.end()), (std::vector<int64_t>{0, 0, 0, 1, 1, 1, 2, 2, 2, 2}));
}

TEST(ForRanges, RangesCoverEachElementOnce) {
  for (const int threads : {1, 2, 3, 7})
    for (const int64_t count : {1, 2, 5, 63, 64, 65, 129, 448, 1000}) {
      std::vector<std::atomic<int>> taken(static_cast<size_t>(count));
      for_ranges(count, 64 * parallel_threshold, threads, [&](int64_t begin, int64_t end) {
        EXPECT_LT(begin, end);
        for (int64_t i = begin; i < end; ++i) ++taken.at(static_cast<size_t>(i));
      });
      for (const auto& times : taken) EXPECT_EQ(times, 1) << count << " elements, " << threads << " threads";
    }
}

TEST(ForStream, OneThreadTakesItemsInOrder) {
  std::vector<int64_t> order;
  for_stream(5, parallel_threshold - 1, 4, [&](int64_t item, int64_t member) { order.push_back(item + member); });
  EXPECT_EQ(order, (std::vector<int64_t>{0, 1, 2, 3, 4}));
}

}  // namespace
}  // namespace tessera::kernels
