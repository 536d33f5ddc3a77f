#include "tessera/mesh/sharding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mesh/random_sharding.h"
#include "tessera/base/error.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

DimSharding dim_of(std::string_view text, const Expr& extent, const Mesh& mesh) {
  return parse_sharding("[" + std::string(text) + "]", {extent}, mesh, "x").dims[0];
}

std::string refusal(std::string_view text, const Shape& shape, const Mesh& mesh) {
  try {
    parse_sharding(text, shape, mesh, "x");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    return error.what();
  }
  return "nothing is refused";
}

// The indices of a dimension that a rank holds, straight from the definition: a digit per part, each restricted to the
// rank's interval, which is balanced and nested over the part's axes.
std::vector<int64_t> held(const DimSharding& dim, const Mesh& mesh, int64_t rank) {
  auto coordinates = mesh.coordinates(rank);
  std::vector<int64_t> indices = {0};
  for (const Part& part : dim.parts) {
    int64_t size = part.size.constant().value(), first = 0, extent = size;
    for (const AxisRef& axis : part.axes) {
      size_t a = static_cast<size_t>(mesh.find(axis.axis).value());
      int64_t digit = coordinates[a] / (mesh.axes()[a].size / (axis.pre * axis.size)) % axis.size;
      int64_t each = extent / axis.size, larger = extent % axis.size;
      first += digit * each + std::min(digit, larger);
      extent = each + (digit < larger);
    }
    std::vector<int64_t> finer;
    for (int64_t index : indices)
      for (int64_t digit = first; digit < first + extent; ++digit) finer.push_back(index * size + digit);
    indices = std::move(finer);
  }
  return indices;
}

bool same_indices(const DimSharding& a, const DimSharding& b, const Mesh& mesh) {
  for (int64_t rank = 0; rank < mesh.size(); ++rank)
    if (held(a, mesh, rank) != held(b, mesh, rank)) return false;
  return true;
}

std::vector<Mesh> meshes() {
  return {Mesh::parse("x=2"), Mesh::parse("x=6"), Mesh::parse("x=2,y=3"), Mesh::parse("x=4,y=2")};
}

TEST(ShardingText, PrintsWhatItReads) {
  Mesh mesh = Mesh::parse("dp=2,tp=4");
  Shape shape{Expr::symbol("batch"), 12, 192};
  for (const char* text :
       {"[-, -, -]", "[batch{dp}, -, -]", "[-, 12{tp}, -]", "[-, 3{dp}·4{tp}, -]", "[batch{dp}?, ?, 192{tp:(1)2}]",
        "[-, -, 6{tp,dp}·32]", "[-, -, -] partial(sum:tp)", "[batch{dp}, -, -] partial(max:tp:(2)2)"})
    EXPECT_EQ(parse_sharding(text, shape, mesh, "x").str(mesh), text);
}

TEST(ShardingText, HasShortForms) {
  Mesh mesh = Mesh::parse("dp=2,tp=4");
  EXPECT_EQ(parse_sharding("[dp, {tp}*6]", {8, 24}, mesh, "x").str(mesh), "[8{dp}, 4{tp}·6]");
  EXPECT_EQ(parse_sharding("[{dp,tp}, ?]", {8, 24}, mesh, "x").str(mesh), "[8{dp,tp}, ?]");
  EXPECT_EQ(parse_sharding("[tp?, -]", {8, 24}, mesh, "x").str(mesh), "[8{tp}?, -]");
}

TEST(ShardingText, SaysWhatIsWrong) {
  Mesh mesh = Mesh::parse("dp=2,tp=4");
  EXPECT_THAT(refusal("[tp]", {4, 6}, mesh), HasSubstr("1 entry, but the tensor has 2 dimensions"));
  EXPECT_THAT(refusal("[pp, -]", {4, 6}, mesh), HasSubstr("its axes are: dp, tp"));
  EXPECT_THAT(refusal("[tp, tp]", {4, 6}, mesh), HasSubstr("axis 'tp' splits both dimension 0 and dimension 1"));
  EXPECT_THAT(refusal("[tp:(1)3, -]", {4, 6}, mesh), HasSubstr("does not divide the axis' size 4"));
  EXPECT_THAT(refusal("[3*2, -]", {4, 6}, mesh), HasSubstr("multiply to 6, but dimension 0 has extent 4"));
  EXPECT_THAT(refusal("[-, -] partial(mean:tp)", {4, 6}, mesh), HasSubstr("is not a partial"));
}

TEST(ShardingText, ReadsTheSizeOfAnEmptyDimension) {
  Mesh mesh = Mesh::parse("x=2");
  EXPECT_TRUE(dim_of("0{x}", 0, mesh).parts.at(0).size.is(0));
  EXPECT_THAT(refusal("[0{x}]", {4}, mesh), HasSubstr("neither an axis nor a part's size"));
}

TEST(ShardingText, RandomOnesSurviveARoundTrip) {
  std::mt19937_64 engine(1);
  for (int i = 0; i < 500; ++i)
    for (const Mesh& mesh : meshes()) {
      Sharding sharding = random_sharding({12, 5, 8}, mesh, engine);
      // Parts without axes are not printed where no part of the dimension has any.
      for (DimSharding& dim : sharding.dims)
        if (!dim.is_split() || std::all_of(dim.parts.begin(), dim.parts.end(), [](auto& p) { return p.axes.empty(); }))
          dim.parts = {Part{dim.size(), {}}};
      EXPECT_EQ(parse_sharding(sharding.str(mesh), {12, 5, 8}, mesh, "x"), sharding) << sharding.str(mesh);
    }
}

// Twelve heads over five ranks; dimensions minor to the heads stay together.
TEST(BalancedSplit, SizesDifferByAtMostOneTheLargerFirst) {
  Mesh mesh = Mesh::parse("x=5");
  std::vector<int64_t> extents, offsets;
  for (int64_t index = 0; index < 5; ++index) {
    extents.push_back(split_extent(12, index, 5).constant().value());
    offsets.push_back(split_offset(12, index, 5).constant().value());
  }
  EXPECT_THAT(extents, ElementsAre(3, 3, 2, 2, 2));
  EXPECT_THAT(offsets, ElementsAre(0, 3, 6, 8, 10));
}

TEST(BalancedSplit, OfFewerUnitsThanRanksLeavesSomeEmpty) {
  DimSharding dim = dim_of("3{x}", 3, Mesh::parse("x=5"));
  std::vector<size_t> counts;
  for (int64_t rank = 0; rank < 5; ++rank) counts.push_back(held(dim, Mesh::parse("x=5"), rank).size());
  EXPECT_THAT(counts, ElementsAre(1, 1, 1, 0, 0));
}

TEST(BalancedSplit, OfTheMinorPartTakesPiecesOfEveryBlock) {
  Mesh mesh = Mesh::parse("tp=2");
  EXPECT_THAT(held(dim_of("3*4{tp}", 12, mesh), mesh, 0), ElementsAre(0, 1, 4, 5, 8, 9));
  EXPECT_EQ(local_extent(dim_of("3*4{tp}", 12, mesh), mesh).str(), "6");
}

TEST(BalancedSplit, NestsItsAxes) {
  Mesh mesh = Mesh::parse("x=2,y=2");
  DimSharding dim = dim_of("{x,y}", 7, mesh);  // 4 and 3, then 2 2 2 1
  EXPECT_THAT(held(dim, mesh, 0), ElementsAre(0, 1));
  EXPECT_THAT(held(dim, mesh, 1), ElementsAre(2, 3));
  EXPECT_THAT(held(dim, mesh, 3), ElementsAre(6));
}

TEST(LocalExtents, AreThoseOfTheIndexSets) {
  std::mt19937_64 engine(2);
  for (int i = 0; i < 500; ++i)
    for (const Mesh& mesh : meshes()) {
      Sharding sharding = random_sharding({12}, mesh, engine);
      const DimSharding& dim = sharding.dims[0];
      for (int64_t rank = 0; rank < mesh.size(); ++rank) {
        auto extent = bind_rank(local_extent(dim, mesh), mesh, mesh.coordinates(rank)).constant();
        EXPECT_EQ(extent, static_cast<int64_t>(held(dim, mesh, rank).size())) << sharding.str(mesh) << " on " << rank;
      }
    }
}

TEST(Canonical, HoldsTheSameIndices) {
  std::mt19937_64 engine(3);
  for (int i = 0; i < 500; ++i)
    for (const Mesh& mesh : meshes()) {
      Sharding sharding = random_sharding({24}, mesh, engine);
      EXPECT_TRUE(same_indices(canonical(sharding.dims[0]), sharding.dims[0], mesh)) << sharding.str(mesh);
    }
}

TEST(Canonical, MergesPartsThatNoSplitSeparates) {
  Mesh mesh = Mesh::parse("x=2");
  EXPECT_EQ(canonical(dim_of("2{x}*3*4", 24, mesh)).parts, dim_of("24{x}", 24, mesh).parts);
  EXPECT_EQ(canonical(dim_of("3{x}*4", 12, mesh)).parts, dim_of("3{x}*4", 12, mesh).parts) << "3 over 2 is uneven";
}

TEST(Canonical, JoinsSubAxesAsFarAsTheySplitEvenly) {
  Mesh mesh = Mesh::parse("x=4,y=2");
  EXPECT_EQ(canonical(dim_of("2{x:(1)2}*2{x:(2)2,y}*2", 8, mesh)).parts, canonical(dim_of("4{x,y}*2", 8, mesh)).parts);
  EXPECT_NE(canonical(dim_of("6{x:(1)2,x:(2)2}", 6, mesh)).parts, canonical(dim_of("6{x}", 6, mesh)).parts)
      << "2 1 2 1 and 2 2 1 1";
}

// Equal layouts hold equal indices, however they are compared.
TEST(SameLayout, IsNeverWrongAboutIndices) {
  std::mt19937_64 engine(4);
  int same = 0, missed = 0;
  for (int i = 0; i < 4000; ++i)
    for (const Mesh& mesh : meshes()) {
      Sharding a = random_sharding({12}, mesh, engine), b = random_sharding({12}, mesh, engine);
      bool equal = same_indices(a.dims[0], b.dims[0], mesh);
      if (same_layout(a, b)) {
        ++same;
        EXPECT_TRUE(equal) << a.str(mesh) << " and " << b.str(mesh);
      } else {
        missed += equal;
      }
    }
  EXPECT_GT(same, 100);
  EXPECT_LT(missed, same) << "most equal index sets are recognised";
}

TEST(Refine, HoldsTheSameIndices) {
  std::mt19937_64 engine(5);
  int refined = 0;
  for (int i = 0; i < 500; ++i)
    for (const Mesh& mesh : meshes()) {
      Sharding sharding = random_sharding({24}, mesh, engine);
      for (int64_t cut : {2, 3, 4, 6, 8, 12}) {
        auto finer = refine(sharding.dims[0], {cut});
        if (!finer) continue;
        ++refined;
        EXPECT_TRUE(same_indices(*finer, sharding.dims[0], mesh)) << sharding.str(mesh) << " cut at " << cut;
      }
    }
  EXPECT_GT(refined, 1000);
}

TEST(Refine, IsFreeOnlyWhereTheRanksDivideTheMajorFactor) {
  Mesh mesh = Mesh::parse("x=2,y=4");
  EXPECT_EQ(refine(dim_of("24{x}", 24, mesh), {6})->parts, dim_of("4{x}*6", 24, mesh).parts);
  EXPECT_EQ(refine(dim_of("24{y}", 24, mesh), {12})->parts, dim_of("2{y:(1)2}*12{y:(2)2}", 24, mesh).parts);
  EXPECT_FALSE(refine(dim_of("24{x}", 24, mesh), {8})) << "3 blocks of 8 over 2 ranks";
}

TEST(SubAxes, OfOneRadixAreIndependent) {
  EXPECT_FALSE((AxisRef{"x", 1, 2}).overlaps({"x", 2, 3}));
  EXPECT_FALSE((AxisRef{"x", 1, 2}).overlaps({"x", 4, 2}));
  EXPECT_FALSE((AxisRef{"x", 1, 2}).overlaps({"y", 1, 2}));
  EXPECT_TRUE((AxisRef{"x", 1, 4}).overlaps({"x", 2, 2}));
  EXPECT_TRUE((AxisRef{"x", 1, 2}).overlaps({"x", 1, 2}));
}

// On 6 ranks x:(1)2 is 0 0 0 1 1 1 and x:(3)2 is 0 1 0 1 0 1: only one rank of four has both at 0 and changes one.
TEST(SubAxes, OfDifferentRadicesOverlap) {
  EXPECT_TRUE((AxisRef{"x", 1, 2}).overlaps({"x", 3, 2}));
  EXPECT_TRUE((AxisRef{"x", 3, 2}).overlaps({"x", 1, 2}));
  EXPECT_THAT(refusal("[x:(1)2, x:(3)2]", {4, 4}, Mesh::parse("x=6")), HasSubstr("name it once"));
}

// Expressions mention sizes, axes, both and neither.
TEST(bind_rank, replaces_the_indices_of_axes_alone) {
  const Mesh mesh = Mesh::parse("x=2,y=3");
  const Expr n = Expr::symbol("n"), x = Expr::axis_index("x"), y = Expr::axis_index("y");
  const std::vector<int64_t> at = {1, 2};
  EXPECT_EQ(bind_rank(7, mesh, at), 7);
  EXPECT_EQ(bind_rank(floordiv(n + 3, 4), mesh, at), floordiv(n + 3, 4));
  EXPECT_EQ(bind_rank(min(4 * x + mod(y, 2), floordiv(9, 1 + y)), mesh, at), 3);
  EXPECT_EQ(bind_rank(floordiv(n + x, 2) * y + max(n, y), mesh, at), 2 * floordiv(n + 1, 2) + max(n, 2));
  EXPECT_EQ(bind_rank(n * x * x - n * y, mesh, at), 0 - n);
  EXPECT_THROW(bind_rank(Expr::axis_index("z"), mesh, at), Error);
  EXPECT_THROW(bind_rank(Expr::axis_index("z") + n, mesh, at), Error);
}

}  // namespace
}  // namespace tessera
