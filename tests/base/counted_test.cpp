#include "tessera/base/counted.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Counted, agrees_with_its_noun) {
  EXPECT_EQ(counted(0, "rank"), "0 ranks");
  EXPECT_EQ(counted(size_t{1}, "rank"), "1 rank");
  EXPECT_EQ(counted(int64_t{2}, "rank"), "2 ranks");
  EXPECT_EQ(counted(-1, "rank"), "-1 ranks");
  EXPECT_EQ(counted(1, "entry", "entries"), "1 entry");
  EXPECT_EQ(counted(3, "entry", "entries"), "3 entries");
}

}  // namespace
}  // namespace tessera
