#include "tessera/cost/links.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tessera/mesh/group.h"

namespace tessera::cost {
namespace {

Topology topology(std::string_view axes) {
  return Topology::from_json(R"({"axes": {)" + std::string(axes) + "}}");
}

constexpr std::string_view kTwoKinds = R"("tp": [{"size": 4, "alpha": 1, "bandwidth": 100, "name": "memory"},
                                                 {"size": 2, "alpha": 5, "bandwidth": 10, "name": "ethernet"}])";

// "tp:(2)4 1 0.01 memory; tp:(1)2 5 0.1 ethernet"
std::string levels(std::string_view mesh_text, const std::vector<std::string>& axes, const Topology& links) {
  const Mesh mesh = Mesh::parse(mesh_text);
  std::vector<AxisRef> group;
  for (const std::string& axis : axes) group.push_back(parse_axis(axis, mesh));
  std::string text;
  for (const GroupLevel& level : levels_of(group, mesh, links)) {
    if (!text.empty()) text += "; ";
    int64_t size = 1;
    for (const AxisRef& axis : level.axes) {
      text += (axis == level.axes.front() ? "" : ",") + axis.str(mesh);
      size *= axis.size;
    }
    EXPECT_EQ(size, level.cost.size);
    text += fmt::format(" {} {} {}", level.cost.alpha, level.cost.beta, level.name);
  }
  return text;
}

TEST(GroupLevels, cut_an_axis_where_its_links_change) {
  EXPECT_EQ(levels("tp=8", {"tp"}, topology(kTwoKinds)), "tp:(2)4 1 0.01 memory; tp:(1)2 5 0.1 ethernet");
}

TEST(GroupLevels, of_a_sub_axis_are_those_that_it_runs_over) {
  EXPECT_EQ(levels("tp=8", {"tp:(2)4"}, topology(kTwoKinds)), "tp:(2)4 1 0.01 memory");
  EXPECT_EQ(levels("tp=8", {"tp:(1)4"}, topology(kTwoKinds)), "tp:(2)2 1 0.01 memory; tp:(1)2 5 0.2 ethernet")
      << "two groups share a host's link";
  EXPECT_EQ(levels("tp=8", {"tp:(1)2"}, topology(kTwoKinds)), "tp:(1)2 5 0.4 ethernet") << "four groups do";
}

TEST(GroupLevels, of_several_axes_follow_each_other) {
  const Topology links = topology(R"("dp": [{"size": 2, "alpha": 5, "bandwidth": 10}],
                                     "tp": [{"size": 4, "alpha": 1, "bandwidth": 100}])");
  EXPECT_EQ(levels("dp=2,tp=4", {"dp", "tp"}, links), "tp 1 0.01 ; dp 5 0.1 ");
  EXPECT_EQ(levels("dp=2,tp=4", {"dp"}, links), "dp 5 0.4 ") << "the four ranks of a host share its link";
}

TEST(GroupLevels, of_equal_cost_are_one) {
  EXPECT_EQ(levels("dp=2,tp=4", {"dp", "tp"}, topology(R"("dp": [{"size": 2, "alpha": 1, "bandwidth": 100}],
                                                         "tp": [{"size": 4, "alpha": 1, "bandwidth": 100}])")),
            "dp,tp 1 0.01 ");
}

TEST(GroupLevels, are_none_where_they_are_not_known) {
  EXPECT_EQ(levels("dp=2,tp=8", {"dp", "tp"}, topology(kTwoKinds)), "") << "dp is not";
  EXPECT_EQ(levels("dp=1,tp=8", {"dp", "tp"}, topology(kTwoKinds)), "tp:(2)4 1 0.01 memory; tp:(1)2 5 0.1 ethernet")
      << "one rank needs no links";
  EXPECT_EQ(levels("tp=6", {"tp:(1)3"}, topology(R"("tp": [{"size": 3, "alpha": 1, "bandwidth": 100},
                                                           {"size": 2, "alpha": 5, "bandwidth": 10}])")),
            "")
      << "digits of stride 2 and 4 do not end where a unit of 3 does";
}

}  // namespace
}  // namespace tessera::cost
