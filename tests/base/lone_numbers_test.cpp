#include "tessera/base/lone_numbers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

std::vector<std::string> numbers_of(const std::string& name) {
  std::vector<std::string> all;
  for (const LoneNumber& number : lone_numbers(name))
    all.push_back(name.substr(number.begin, number.end - number.begin));
  return all;
}

TEST(LoneNumbers, are_words_of_their_own) {
  EXPECT_THAT(numbers_of("h.12.attn_3"), testing::ElementsAre("12", "3"));
  EXPECT_THAT(numbers_of("7/fc1.2x.x2.8"), testing::ElementsAre("7", "8"));
  EXPECT_THAT(numbers_of("fc1"), testing::IsEmpty());
  EXPECT_THAT(numbers_of(""), testing::IsEmpty());
}

}  // namespace
}  // namespace tessera
