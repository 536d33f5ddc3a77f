#include "tessera/mesh/queues.h"

#include <gtest/gtest.h>

#include <set>

#include "tessera/mesh/axis_name.h"
#include "tessera/mesh/group.h"

namespace tessera {
namespace {

TEST(Queues, are_those_of_accelerators) {
  EXPECT_FALSE(has_queues("cpu"));
  EXPECT_TRUE(has_queues("simulated"));
}

TEST(Queues, have_the_name_of_the_nearest_axis) {
  const Mesh mesh = Mesh::parse("dp=8,tp=4,one=1");
  const auto queue = [&](const std::vector<std::string>& axes) { return queue_of(parse_axes(axes, mesh), mesh); };
  EXPECT_EQ(queue({"dp", "tp"}), "tp");
  EXPECT_EQ(queue({"tp"}), "tp");
  EXPECT_EQ(queue({"dp:(1)2"}), "dp:(1)2");
}

TEST(Queues, of_groups_of_one_rank_have_a_name_that_no_axis_has) {
  const Mesh mesh = Mesh::parse("dp=2,one=1");
  for (const std::vector<std::string>& axes : {std::vector<std::string>{"one"}, {}}) {
    const std::string name = queue_of(parse_axes(axes, mesh), mesh);
    EXPECT_FALSE(name.empty()) << "this is the queue that computes";
    EXPECT_FALSE(is_axis_name(name));
  }
}

// 12 has the divisors 2, 3, 4, 6 and 12.
TEST(Queues, are_at_most_as_many_as_an_axis_has_divisors) {
  const Mesh mesh = Mesh::parse("dp=12");
  std::set<std::string> names;
  for (int pre = 1; pre <= 12; ++pre)
    for (int size = 2; size <= 12; ++size)
      if (12 % (pre * size) == 0) names.insert(queue_of({AxisRef{"dp", pre, size}}, mesh));
  EXPECT_EQ(names.size(), 5U);
}

}  // namespace
}  // namespace tessera
