#include "tessera/mesh/nearest_axis.h"

#include <gtest/gtest.h>

#include "tessera/mesh/group.h"

namespace tessera {
namespace {

TEST(NearestAxis, is_the_last_one_of_the_mesh_that_the_group_has) {
  const Mesh mesh = Mesh::parse("dp=8,tp=4,one=1");
  const auto nearest = [&](const std::vector<std::string>& axes) { return nearest_axis(parse_axes(axes, mesh), mesh); };
  EXPECT_EQ(nearest({"tp"}), "tp");
  EXPECT_EQ(nearest({"dp", "tp"}), "tp");
  EXPECT_EQ(nearest({"tp", "dp"}), "tp");
  EXPECT_EQ(nearest({"dp"}), "dp");
  EXPECT_EQ(nearest({"dp", "one"}), "dp") << "no two ranks differ along an axis of one";
  EXPECT_EQ(nearest({"one"}), "");
}

TEST(NearestAxis, tells_the_major_part_of_an_axis_from_the_minor_one) {
  const Mesh mesh = Mesh::parse("dp=8");
  const auto nearest = [&](const std::string& axis) { return nearest_axis({parse_axis(axis, mesh)}, mesh); };
  EXPECT_EQ(nearest("dp:(4)2"), "dp") << "the minor part has the links of the whole axis";
  EXPECT_EQ(nearest("dp:(1)4"), "dp:(1)4");
  EXPECT_EQ(nearest("dp:(2)2"), "dp:(1)4");
}

}  // namespace
}  // namespace tessera
