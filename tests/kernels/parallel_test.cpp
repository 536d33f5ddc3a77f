#include "tessera/kernels/cpu/parallel.h"

#include <gtest/gtest.h>

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

TEST(ForStream, OneThreadTakesItemsInOrder) {
  std::vector<int64_t> order;
  for_stream(5, parallel_threshold - 1, 4, [&](int64_t item, int64_t member) { order.push_back(item + member); });
  EXPECT_EQ(order, (std::vector<int64_t>{0, 1, 2, 3, 4}));
}

}  // namespace
}  // namespace tessera::kernels
