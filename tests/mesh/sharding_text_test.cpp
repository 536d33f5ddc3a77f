#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/mesh/sharding.h"

namespace tessera {
namespace {

// The output of str() reads back as the same layout, for any sizes of parts.
TEST(ShardingText, reads_back_as_the_same_layout) {
  Mesh mesh = Mesh::parse("dp=2,tp=4");
  Expr b = Expr::symbol("b"), s = Expr::symbol("s");
  const std::vector<AxisRef> dp = {AxisRef::whole(mesh.axes()[0])}, tp = {AxisRef::whole(mesh.axes()[1])};
  const std::vector<AxisRef> half = {{"tp", 2, 2}};
  const std::vector<DimSharding> dims = {
      {{{b, dp}}, false},
      {{{2 * b, dp}}, false},
      {{{b * s, dp}, {3, tp}}, false},
      {{{3, {}}, {s + 1, tp}}, false},
      {{{floordiv(s, 2), dp}, {64, half}}, false},
      {{{min(s, 8) * b, tp}}, false},
      {{{192, {}}}, false},
  };
  for (const DimSharding& dim : dims) {
    Sharding sharding{{dim}, {}};
    std::string text = sharding.str(mesh);
    EXPECT_TRUE(same_layout(parse_sharding(text, {dim.size()}, mesh, "x"), sharding)) << text;
  }
}

TEST(ShardingText, ends_with_the_place) {
  Mesh mesh = Mesh::parse("pp=3,tp=4");
  Sharding sharding = parse_sharding("[tp] at(pp=2)", {8}, mesh, "x");
  EXPECT_EQ(sharding.at, (std::vector<PlacedAxis>{{AxisRef::whole(mesh.axes()[0]), 2}}));
  EXPECT_EQ(sharding.str(mesh), "[8{tp}] at(pp=2)");
  EXPECT_EQ(parse_sharding("[-] partial(sum:tp) at(pp=2)", {8}, mesh, "x").str(mesh), "[-] partial(sum:tp) at(pp=2)");
  EXPECT_EQ(parse_sharding("[-] at(tp:(2)2=1, pp=0)", {8}, mesh, "x").str(mesh), "[-] at(pp=0, tp:(2)2=1)");
  EXPECT_FALSE(same_layout(sharding, parse_sharding("[tp]", {8}, mesh, "x")));
  EXPECT_FALSE(same_layout(sharding, parse_sharding("[tp] at(pp=1)", {8}, mesh, "x")));
}

TEST(ShardingText, refuses_places_that_are_none) {
  Mesh mesh = Mesh::parse("pp=3,tp=4");
  for (const char* text : {"[-] at(pp=3)", "[-] at(pp)", "[-] at(q=0)", "[tp] at(tp=1)", "[-] at(pp=1, pp=2)",
                           "[-] partial(sum:tp) at(tp=0)", "[-] at(pp=0) partial(sum:tp)", "[-] at()"})
    EXPECT_THROW(parse_sharding(text, {8}, mesh, "x"), Error) << text;
}

TEST(ShardingText, tells_which_ranks_have_a_part) {
  Mesh mesh = Mesh::parse("pp=3,tp=4");
  Sharding sharding = parse_sharding("[-] at(pp=2, tp:(1)2=1)", {8}, mesh, "x");
  for (int64_t rank = 0; rank < mesh.size(); ++rank)
    EXPECT_EQ(sharding.lives_on(mesh, mesh.coordinates(rank)), rank == 10 || rank == 11) << rank;
}

}  // namespace
}  // namespace tessera
