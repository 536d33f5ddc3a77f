#include "tessera/bounds.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Bounds, say_in_words_what_they_hold) {
  EXPECT_EQ(Bounds().text(), "a finite number");
  EXPECT_EQ(Bounds::above(0).text(), "a number above 0");
  EXPECT_EQ(Bounds::at_least(0).text(), "a number of at least 0");
  EXPECT_EQ(Bounds::between(1, 256).text(), "a number from 1 to 256");
  EXPECT_EQ(Bounds::from_to_below(0, 1).text(), "a number from 0 to below 1");
  EXPECT_EQ((Bounds{0, 1, true}).text(), "a number above 0 and at most 1");
}

TEST(Bounds, take_whole_texts_of_numbers_that_they_hold) {
  EXPECT_EQ(Bounds::between(1, 256).parse("256"), 256);
  EXPECT_EQ(Bounds::from_to_below(0, 1).parse("0"), 0);
  for (const char* text : {"", "x", "1x", "nan", "inf", "1e39", "257", "0.5"})
    EXPECT_FALSE(Bounds::between(1, 256).parse(text)) << text;
  EXPECT_FALSE(Bounds::from_to_below(0, 1).parse("1"));
  EXPECT_FALSE(Bounds().parse("1e39")) << "infinite in float32";
}

}  // namespace
}  // namespace tessera
