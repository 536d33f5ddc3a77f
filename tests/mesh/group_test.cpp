#include "tessera/mesh/group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tessera/base/error.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int> group(std::string_view mesh_text, int64_t rank, const std::vector<std::string>& names) {
  Mesh mesh = Mesh::parse(mesh_text);
  std::vector<AxisRef> axes;
  for (const std::string& name : names) axes.push_back(parse_axis(name, mesh));
  return group_of(rank, axes, mesh);
}

TEST(Group, IsTheRanksThatDifferAlongItsAxes) {
  EXPECT_THAT(group("dp=2,tp=2", 3, {"tp"}), ElementsAre(2, 3));
  EXPECT_THAT(group("dp=2,tp=2", 3, {"dp"}), ElementsAre(1, 3));
  EXPECT_THAT(group("dp=2,tp=3", 4, {}), ElementsAre(4));
}

TEST(Group, IsOrderedAsItsAxesAreWritten) {
  EXPECT_THAT(group("x=2,y=3", 0, {"x", "y"}), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(group("x=2,y=3", 0, {"y", "x"}), ElementsAre(0, 3, 1, 4, 2, 5));
}

TEST(Group, OfASubAxisStridesOverTheOthers) {
  EXPECT_THAT(group("x=6", 4, {"x:(1)2"}), ElementsAre(1, 4));
  EXPECT_THAT(group("x=6", 4, {"x:(2)3"}), ElementsAre(3, 4, 5));
  EXPECT_THAT(group("x=8", 3, {"x:(2)2"}), ElementsAre(1, 3));
}

// Every rank is in exactly one group, and all members of a group name the same one.
TEST(Group, PartitionsTheMesh) {
  for (const char* mesh_text : {"x=6,y=2", "x=2,y=6", "x=4,y=3"})
    for (const std::vector<std::string>& axes :
         std::vector<std::vector<std::string>>{{"x"}, {"y"}, {"x", "y"}, {"x:(1)2", "y"}, {"x:(1)2"}}) {
      Mesh mesh = Mesh::parse(mesh_text);
      std::set<std::vector<int>> groups;
      std::multiset<int> members;
      for (int64_t rank = 0; rank < mesh.size(); ++rank) groups.insert(group(mesh_text, rank, axes));
      for (const auto& one : groups) members.insert(one.begin(), one.end());
      EXPECT_EQ(members.size(), static_cast<size_t>(mesh.size()));
      EXPECT_EQ(std::set<int>(members.begin(), members.end()).size(), static_cast<size_t>(mesh.size()));
    }
}

TEST(Axis, ReadsWhatItPrints) {
  Mesh mesh = Mesh::parse("dp=2,tp=12");
  for (const char* text : {"dp", "tp", "tp:(2)3", "tp:(1)4"}) EXPECT_EQ(parse_axis(text, mesh).str(mesh), text);
}

TEST(Axis, SaysWhatIsWrong) {
  Mesh mesh = Mesh::parse("dp=2,tp=12");
  auto message = [&](std::string_view text) -> std::string {
    try {
      parse_axis(text, mesh);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  };
  EXPECT_THAT(message("pp"), HasSubstr("'pp' is not an axis of the mesh dp=2,tp=12"));
  EXPECT_THAT(message("tp:(5)2"), HasSubstr("does not divide the axis' size 12"));
  EXPECT_THAT(message("tp:2"), HasSubstr("tp:(PRE)SIZE"));
}

}  // namespace
}  // namespace tessera
