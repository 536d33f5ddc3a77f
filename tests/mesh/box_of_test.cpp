#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "mesh/random_sharding.h"
#include "tessera/mesh/box.h"

namespace tessera {
namespace {

using testing::ElementsAre;

std::optional<int64_t> no_symbols(std::string_view) {
  return std::nullopt;
}

Box box(std::string_view text, const Shape& shape, std::string_view mesh_text, int64_t rank) {
  Mesh mesh = Mesh::parse(mesh_text);
  return box_of(parse_sharding(text, shape, mesh, "x"), mesh, mesh.coordinates(rank), no_symbols);
}

std::vector<int> counted(int64_t count) {
  std::vector<int> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

TEST(Box, HasADimensionPerPart) {
  Box shard = box("[3*4{x}, -]", {12, 2}, "x=2", 1);
  EXPECT_THAT(shard.dims, ElementsAre(3, 4, 2));
  EXPECT_THAT(shard.offsets, ElementsAre(0, 2, 0));
  EXPECT_THAT(shard.extents, ElementsAre(3, 2, 2));
}

TEST(Box, OfRowsIsContiguousAndOfColumnsIsNot) {
  EXPECT_TRUE(box("[x, -]", {5, 4}, "x=2", 1).contiguous());
  EXPECT_EQ(box("[x, -]", {5, 4}, "x=2", 1).first(), 12);
  EXPECT_FALSE(box("[-, x]", {5, 4}, "x=2", 1).contiguous());
  EXPECT_TRUE(box("[-, x]", {1, 4}, "x=2", 1).contiguous()) << "there is one row only";
}

TEST(Box, MayBeEmpty) {
  Box last = box("[x, -]", {2, 3}, "x=3", 2);
  EXPECT_EQ(last.count(), 0);
  EXPECT_TRUE(last.contiguous());
  std::vector<int> whole = counted(6), shard = {7};
  copy_from_whole(shard.data(), whole.data(), last, sizeof(int));
  EXPECT_THAT(shard, ElementsAre(7));
}

TEST(Box, BindsSymbols) {
  Mesh mesh = Mesh::parse("x=2");
  Sharding sharding = parse_sharding("[x, -]", {Expr::symbol("b"), 3}, mesh, "x");
  Box shard = box_of(sharding, mesh, {1}, [](std::string_view) { return std::optional<int64_t>(7); });
  EXPECT_THAT(shard.offsets, ElementsAre(4, 0));
  EXPECT_THAT(shard.extents, ElementsAre(3, 3));
}

TEST(CopyBox, TakesTheElementsOfTheBox) {
  std::vector<int> whole = counted(12), shard(6, -1);
  copy_from_whole(shard.data(), whole.data(), box("[-, 2{x}*2]", {3, 4}, "x=2", 1), sizeof(int));
  EXPECT_THAT(shard, ElementsAre(2, 3, 6, 7, 10, 11));
}

// Shards cut out of a whole and put together again are the whole.
TEST(CopyBox, RandomShardsMakeTheWhole) {
  std::mt19937_64 engine(11);
  for (int i = 0; i < 300; ++i) {
    Mesh mesh = Mesh::parse(i % 2 ? "x=4,y=3" : "x=6,y=2");
    Sharding sharding = random_sharding({6, 4, 5}, mesh, engine);
    SCOPED_TRACE(sharding.str(mesh));
    std::vector<int> whole = counted(120), again(120, -1);
    for (int64_t rank = 0; rank < mesh.size(); ++rank) {
      Box shard_box = box_of(sharding, mesh, mesh.coordinates(rank), no_symbols);
      std::vector<int> shard(static_cast<size_t>(shard_box.count()) + 1, -2);
      copy_from_whole(shard.data(), whole.data(), shard_box, sizeof(int));
      EXPECT_EQ(shard.back(), -2) << "nothing is written behind the shard";
      copy_to_whole(again.data(), shard.data(), shard_box, sizeof(int));
    }
    EXPECT_EQ(again, whole);
  }
}

}  // namespace
}  // namespace tessera
