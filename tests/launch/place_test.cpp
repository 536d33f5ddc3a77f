#include "tessera/launch/place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "error_of.h"

namespace tessera::launch {
namespace {

using test::error_of;
using testing::HasSubstr;
using Numbers = std::vector<int64_t>;

std::vector<std::pair<int, int>> places(const Numbers& hosts, const Numbers& ranks, const Numbers& sizes) {
  std::vector<std::pair<int, int>> all;
  for (int rank = 0; rank < static_cast<int>(hosts.size()); ++rank) {
    const Place place = place_of(rank, hosts, ranks, sizes);
    all.emplace_back(place.local_rank, place.local_size);
  }
  return all;
}
using Places = std::vector<std::pair<int, int>>;

TEST(Place, is_what_the_launcher_says_if_it_says_all) {
  EXPECT_EQ(places({7, 7, 9}, {1, 0, 0}, {2, 2, 1}), (Places{{1, 2}, {0, 2}, {0, 1}}));
  EXPECT_EQ(places({7, 8}, {0, 1}, {2, 2}), (Places{{0, 2}, {1, 2}})) << "a container each, on one machine";
}

TEST(Place, is_what_the_hosts_say_if_a_launcher_leaves_something_out) {
  const Numbers hosts{7, 9, 7};
  const Places by_host{{0, 2}, {0, 1}, {1, 2}};
  EXPECT_EQ(places(hosts, {-1, -1, -1}, {0, 0, 0}), by_host);
  EXPECT_EQ(places(hosts, {1, 0, 0}, {0, 0, 0}), by_host) << "numbers without sizes";
  EXPECT_EQ(places(hosts, {1, 0, 0}, {2, 1, 0}), by_host) << "one rank that does not know";
  EXPECT_EQ(places({7, 8}, {0, 1}, {0, 0}), (Places{{0, 1}, {0, 1}})) << "never rank 1 of 1";
}

TEST(Place, is_refused_where_numbers_contradict_each_other) {
  EXPECT_THAT(error_of([] { places({7, 8}, {0, 1}, {1, 1}); }), HasSubstr("rank 1 is rank 1 (from 0) of 1"));
  EXPECT_THAT(error_of([] {
                places({7, 7}, {0, 0}, {2, 2});
              }),
              HasSubstr("ranks 0 and 1 of one machine are both rank 0 there"));
}

}  // namespace
}  // namespace tessera::launch
