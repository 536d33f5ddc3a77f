#include <gtest/gtest.h>

#include "tessera/inspect.h"

namespace tessera {
namespace {

TEST(NameNumbers, that_are_words_of_their_own_become_stars) {
  EXPECT_EQ(without_numbers("h.12.attn_3"), "h.*.attn_*");
  EXPECT_EQ(without_numbers("grad of 'h.7.fc1'"), "grad of 'h.*.fc1'");
  EXPECT_EQ(without_numbers(""), "");
}

}  // namespace
}  // namespace tessera
