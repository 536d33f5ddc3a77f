// What a rank learns from its notices about a wait that lasts too long.
#include "tessera/comm/remote/watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tessera/base/error.h"

namespace tessera::comm {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Notices of a world in which nobody else is heard.
class Silence : public Notices {
 public:
  Silence(int carrier, std::optional<std::vector<int>> answer) : carrier_(carrier), answer_(std::move(answer)) {}
  bool tell(const std::string&) override { return true; }
  std::optional<Notice> next() override { return std::nullopt; }
  std::optional<Notice> end() override { return std::nullopt; }
  int carrier() const override { return carrier_; }
  std::optional<std::vector<int>> carrier_answer() override { return answer_; }

 private:
  const int carrier_;
  const std::optional<std::vector<int>> answer_;
};

std::string verdict_of(int carrier, std::optional<std::vector<int>> answer, bool joins = false) {
  Silence notices(carrier, std::move(answer));
  Watch watch(1, 3, std::chrono::milliseconds(1), std::chrono::milliseconds(7), notices);
  const Place place{"all_reduce 'y'", "{0,1,2}", 4, false, {0, 2}};
  try {
    watch.wait_until([] { return false; }, [&] { return place; }, joins);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

const std::vector<int> kNobody;

TEST(Watch, blames_no_rank_that_could_not_be_heard) {
  EXPECT_THAT(verdict_of(0, std::nullopt),
              AllOf(HasSubstr("rank 0 does not answer"), HasSubstr("where rank 2 is is not known"),
                    Not(HasSubstr("not come")), Not(HasSubstr("says nothing"))));
  EXPECT_THAT(verdict_of(0, kNobody), AllOf(HasSubstr("ranks 0,2 say nothing"), Not(HasSubstr("passes on"))));
  EXPECT_THAT(verdict_of(-1, kNobody), AllOf(HasSubstr("ranks 0,2 say nothing"), Not(HasSubstr("passes on"))));
}

TEST(Watch, tells_who_has_left_from_who_hangs) {
  EXPECT_THAT(verdict_of(0, std::vector{2}),
              AllOf(HasSubstr("rank 2 was done and left"), HasSubstr("rank 0 says nothing")));
}

TEST(Watch, has_a_longer_patience_with_ranks_that_come_together) {
  EXPECT_THAT(verdict_of(-1, kNobody), HasSubstr("gave up after 1 ms"));
  EXPECT_THAT(verdict_of(-1, kNobody, true), HasSubstr("gave up after 7 ms"));
}

}  // namespace
}  // namespace tessera::comm
