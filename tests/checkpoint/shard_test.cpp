#include "tessera/checkpoint/shard.h"

#include <numeric>
#include <random>

#include "checkpoint/fixture.h"
#include "random/settings.h"

namespace tessera::checkpoint {
namespace {

using testing_io::TemporaryFolder;

std::optional<int64_t> no_symbols(std::string_view) {
  return std::nullopt;
}

std::vector<Region> regions_of(const std::string& sharding, const Dims& dims, const std::string& mesh_text,
                               int64_t rank) {
  const Mesh mesh = Mesh::parse(mesh_text);
  const Sharding parsed = parse_sharding(sharding, Shape(dims.begin(), dims.end()), mesh, "x");
  std::vector<Region> regions;
  for (const ShardPiece& piece : pieces_of(parsed, mesh, mesh.coordinates(rank), no_symbols))
    regions.push_back(piece.whole);
  return regions;
}

TEST(shard, pieces_are_maximal_intervals) {
  using testing::ElementsAre;
  EXPECT_THAT(regions_of("[tp, -]", {5, 3}, "tp=2", 0), ElementsAre(Region{{0, 0}, {3, 3}}));
  EXPECT_THAT(regions_of("[tp, -]", {5, 3}, "tp=2", 1), ElementsAre(Region{{3, 0}, {2, 3}}));
  EXPECT_THAT(regions_of("[6{tp}*32]", {192}, "tp=2", 1), ElementsAre(Region{{96}, {96}}));
  EXPECT_THAT(regions_of("[3*4{tp}]", {12}, "tp=2", 0),
              ElementsAre(Region{{0}, {2}}, Region{{4}, {2}}, Region{{8}, {2}}));
  EXPECT_THAT(regions_of("[]", {}, "tp=2", 0), ElementsAre(Region{{}, {}}));
  EXPECT_THAT(regions_of("[tp]", {1}, "tp=2", 1), ElementsAre());
  EXPECT_THAT(regions_of("[-] at(tp=1)", {3}, "tp=2", 0), ElementsAre());
}

TEST(shard, the_lowest_replica_saves) {
  const Mesh mesh = Mesh::parse("dp=2,tp=4");
  const auto savers = [&](const std::string& text) {
    std::vector<int64_t> ranks;
    const Sharding sharding = parse_sharding(text, {8, 8}, mesh, "x");
    for (int64_t rank = 0; rank < mesh.size(); ++rank)
      if (saves_shard(sharding, mesh, mesh.coordinates(rank))) ranks.push_back(rank);
    return ranks;
  };
  using testing::ElementsAre;
  EXPECT_THAT(savers("[-, -]"), ElementsAre(0));
  EXPECT_THAT(savers("[tp, -]"), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(savers("[-, dp]"), ElementsAre(0, 4));
  EXPECT_THAT(savers("[dp, tp]"), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(savers("[tp:(1)2, -]"), ElementsAre(0, 2));
  EXPECT_THAT(savers("[tp:(2)2, -]"), ElementsAre(0, 1));
  EXPECT_THAT(savers("[tp, -] at(dp=1)"), ElementsAre(4, 5, 6, 7));
}

// A random sharding of a tensor: a few layouts of each dimension, each axis at most once.
std::string random_sharding(const Dims& dims, const Mesh& mesh, std::mt19937_64& random) {
  std::vector<std::string> axes;
  for (const MeshAxis& axis : mesh.axes()) axes.push_back(axis.name);
  std::shuffle(axes.begin(), axes.end(), random);
  std::string text = "[";
  for (size_t d = 0; d < dims.size(); ++d) {
    if (d > 0) text += ", ";
    if (axes.empty() || random() % 4 == 0) {
      text += "-";
      continue;
    }
    const std::string axis = axes.back();
    axes.pop_back();
    if (dims[d] > 0 && dims[d] % 6 == 0 && random() % 2 == 0)
      text +=
          random() % 2 ? fmt::format("3*{}{{{}}}", dims[d] / 3, axis) : fmt::format("2*3{{{}}}*{}", axis, dims[d] / 6);
    else if (!axes.empty() && random() % 2 == 0) {
      text += fmt::format("{{{},{}}}", axis, axes.back());
      axes.pop_back();
    } else
      text += axis;
  }
  return text + "]";
}

// What is saved on one mesh is read on another.
TEST(shard, any_mesh_reads_what_any_mesh_saved) {
  const uint64_t seed = random::number_from("TESSERA_TEST_SEED", random::kFirstSeed);
  SCOPED_TRACE(testing::Message() << "TESSERA_TEST_SEED=" << seed);
  std::mt19937_64 generator(seed);
  TemporaryFolder folder;
  const std::vector<Mesh> meshes = {Mesh::parse("a=1"), Mesh::parse("a=2"), Mesh::parse("a=3,b=2"),
                                    Mesh::parse("a=2,b=2,c=2")};
  for (int trial = 0; trial < 25; ++trial) {
    TensorType type{"x", generator() % 2 ? DType::uint8 : DType::int64, {}};
    for (size_t d = generator() % 4; d > 0; --d) {
      constexpr int64_t kExtents[] = {0, 1, 2, 5, 6, 7, 12, 13};
      type.dims.push_back(kExtents[generator() % 8 == 0 ? 0 : 1 + generator() % 7]);
    }
    const size_t element = static_cast<size_t>(bits_of(type.dtype)) / 8;
    Tensor whole = Tensor::zeros(type.dtype, type.dims);
    for (size_t i = 0; i < whole.bytes; ++i) whole.mutable_data()[i] = static_cast<std::byte>(generator());
    const Shape shape(type.dims.begin(), type.dims.end());
    const Mesh &from = meshes[generator() % 4], &to = meshes[generator() % 4];
    const std::string saved = random_sharding(type.dims, from, generator),
                      read = random_sharding(type.dims, to, generator);
    SCOPED_TRACE(testing::Message() << "trial " << trial << ": " << testing::PrintToString(type.dims) << ' ' << saved
                                    << " on " << from.str() << ", " << read << " on " << to.str());
    // The shard of a rank, cut by the mesh's own arithmetic.
    const auto shard_of = [&](const Sharding& sharding, const Mesh& mesh, int64_t rank) {
      const Box box = box_of(sharding, mesh, mesh.coordinates(rank), no_symbols);
      std::vector<std::byte> shard(static_cast<size_t>(box.count()) * element);
      copy_from_whole(shard.data(), whole.data, box, element);
      return shard;
    };
    const Sharding before = parse_sharding(saved, shape, from, "x"), after = parse_sharding(read, shape, to, "x");
    for (int64_t rank = 0; rank < from.size(); ++rank) {
      RankFile file(folder.path(), trial, rank, kRun);
      add_shard(file, type, before, from, from.coordinates(rank), no_symbols, shard_of(before, from, rank).data());
      ASSERT_EQ(file.finish(), std::nullopt);
    }
    const Outcome outcome = commit(folder.path(), {trial, "m", {}, kRun}, from.size(), 1);
    ASSERT_TRUE(outcome.saved) << outcome.problem;
    const Checkpoint checkpoint = Checkpoint::open(folder.path() / folder_name(trial));
    checkpoint.require_model("m", std::vector{type});
    for (int64_t rank = 0; rank < to.size(); ++rank) {
      const std::vector<std::byte> expected = shard_of(after, to, rank);
      std::vector<std::byte> got(expected.size());
      read_shard(checkpoint, "x", after, to, to.coordinates(rank), no_symbols, got.data());
      ASSERT_EQ(got, expected) << "rank " << rank;
    }
  }
}

}  // namespace
}  // namespace tessera::checkpoint
