// What a rank finds out of its notices about a wait that lasts too long.
#include "tessera/comm/remote/watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"

namespace tessera::comm {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Of a world in which nobody else is heard.
class Silence : public Notices {
 public:
  explicit Silence(int carrier) : carrier_(carrier) {}
  bool tell(const std::string&) override { return true; }
  std::optional<Notice> next() override { return std::nullopt; }
  int carrier() const override { return carrier_; }

 private:
  const int carrier_;
};

std::string verdict_of(int carrier, bool joins = false) {
  Silence notices(carrier);
  Watch watch(1, 3, std::chrono::milliseconds(1), std::chrono::milliseconds(7), notices);
  const Place place{"all_reduce 'y'", "{0,1,2}", 4, false, {0, 2}};
  try {
    watch.wait_until([] { return false; }, [&] { return place; }, joins);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Watch, says_whose_silence_may_be_that_of_the_others) {
  EXPECT_THAT(verdict_of(0), AllOf(HasSubstr("ranks 0,2 say nothing"), HasSubstr("rank 0 passes on what")));
  EXPECT_THAT(verdict_of(-1), AllOf(HasSubstr("ranks 0,2 say nothing"), Not(HasSubstr("passes on"))));
}

TEST(Watch, has_a_longer_patience_with_ranks_that_come_together) {
  EXPECT_THAT(verdict_of(-1), HasSubstr("gave up after 1 ms"));
  EXPECT_THAT(verdict_of(-1, true), HasSubstr("gave up after 7 ms"));
}

}  // namespace
}  // namespace tessera::comm
