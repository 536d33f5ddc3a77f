#include "tessera/spmd/reshard/reshard.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mesh/random_sharding.h"
#include "tessera/runtime/executor.h"

namespace tessera::spmd {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const Shape kShape{8, 12};

Sharding read(std::string_view text, const Mesh& mesh) {
  return parse_sharding(text, kShape, mesh, "x");
}

std::vector<std::string> steps(std::string_view from, std::string_view to, std::string_view mesh_text) {
  Mesh mesh = Mesh::parse(mesh_text);
  std::vector<std::string> names;
  for (const ReshardStep& step : plan_reshard(read(from, mesh), read(to, mesh))) names.push_back(step.str(mesh));
  return names;
}

TEST(ReshardPlan, IsEmptyWhereNothingChanges) {
  EXPECT_THAT(steps("[x, -]", "[x, -]", "x=2"), IsEmpty());
  EXPECT_THAT(steps("[8{x}, -]", "[2{x}*4, -]", "x=2"), IsEmpty()) << "the same rows in other parts";
}

TEST(ReshardPlan, SlicesForNothing) {
  EXPECT_THAT(steps("[-, -]", "[x, -]", "x=2"), ElementsAre("Slice x"));
}

TEST(ReshardPlan, GathersASplit) {
  EXPECT_THAT(steps("[x, -]", "[-, -]", "x=2"), ElementsAre("AllGather x"));
}

// Plain steps lead to the place, and the search goes on from there.
TEST(ReshardPlan, IsSearchedOncePlacesAgree) {
  EXPECT_THAT(steps("[x, y] at(z=0)", "[y, x] at(z=1)", "x=2,y=2,z=2"), ElementsAre("Permute z", "Permute x,y"));
  EXPECT_THAT(steps("[x, y] at(z=0)", "[y, x]", "x=2,y=2,z=2"), ElementsAre("Broadcast z", "Permute x,y"));
}

// The same once all sums that are left are of one reduction.
TEST(ReshardPlan, IsSearchedOnceReductionsAgree) {
  EXPECT_THAT(steps("[x, -] partial(max:y, sum:z)", "[-, {x,z}]", "x=2,y=2,z=2"),
              ElementsAre("AllReduce y", "ReduceScatter z", "AllToAll x,z"));
}

// What was found for one tensor is not taken for another of other extents.
TEST(ReshardPlan, IsTheSameWhenAskedAgain) {
  const Mesh mesh = Mesh::parse("x=2,y=2");
  const auto plan = [&](const Shape& shape) {
    const auto read = [&](std::string_view text) { return parse_sharding(text, shape, mesh, "t"); };
    std::string text;
    for (const ReshardStep& step : plan_reshard(read("[x, y]"), read("[y, x]")))
      text += step.str(mesh) + " to " + step.after.str(mesh) + "; ";
    return text;
  };
  const std::string even = plan({8, 8}), uneven = plan({7, 9}), symbolic = plan({Expr::symbol("n"), 8});
  EXPECT_NE(even, uneven);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(plan({8, 8}), even);
    EXPECT_EQ(plan({7, 9}), uneven);
    EXPECT_EQ(plan({Expr::symbol("n"), 8}), symbolic);
  }
}

TEST(ReshardPlan, MovesASplitByOneAllToAll) {
  EXPECT_THAT(steps("[x, -]", "[-, x]", "x=2"), ElementsAre("AllToAll x"));
  EXPECT_THAT(steps("[x, -]", "[-, 3*4{x}]", "x=2"), ElementsAre("AllToAll x"));
}

TEST(ReshardPlan, ReducesOntoTheSplitThatIsWanted) {
  EXPECT_THAT(steps("[-, -] partial(sum:x)", "[-, -]", "x=2"), ElementsAre("AllReduce x"));
  EXPECT_THAT(steps("[-, -] partial(sum:x)", "[x, -]", "x=2"), ElementsAre("ReduceScatter x"));
  EXPECT_THAT(steps("[-, -] partial(sum:x, sum:y)", "[-, -]", "x=2,y=2"), ElementsAre("AllReduce x,y"))
      << "two axes at once";
  EXPECT_THAT(steps("[-, -] partial(sum:x, max:y)", "[-, -]", "x=2,y=2"), ElementsAre("AllReduce x", "AllReduce y"))
      << "but not two reductions";
}

TEST(ReshardPlan, DropsMinorAxesByOneAllGather) {
  EXPECT_THAT(steps("[{x,y}, -]", "[x, -]", "x=2,y=2"), ElementsAre("AllGather y"));
  EXPECT_THAT(steps("[{x,y}, -]", "[-, -]", "x=2,y=2"), ElementsAre("AllGather x,y"));
}

TEST(ReshardPlan, GathersPartsThatDoNotLineUpAndSlicesAnew) {
  EXPECT_THAT(steps("[-, 3{x}*4]", "[-, 2{x}*6]", "x=2"), ElementsAre("AllGather x", "Slice x"));
}

TEST(ReshardPlan, ReordersAxesByAPermutation) {
  EXPECT_THAT(steps("[{x,y}, -]", "[{y,x}, -]", "x=2,y=2"), ElementsAre("Permute x,y"));
  EXPECT_THAT(steps("[{x,y}, -]", "[y, -]", "x=2,y=2"), ElementsAre("Permute x,y", "AllGather x"));
  EXPECT_THAT(steps("[{x,y}, -]", "[y, x]", "x=2,y=2"), ElementsAre("AllToAll x,y", "AllToAll y"))
      << "each member keeps its own block of an exchange";
  EXPECT_THAT(steps("[x, -]", "[{y,x}, -]", "x=2,y=2"), ElementsAre("Slice y", "Permute x,y"));
  EXPECT_THAT(steps("[x, -]", "[y, -]", "x=4,y=4"), ElementsAre("Permute x,y")) << "as many pieces as before";
  EXPECT_THAT(steps("[-, x]", "[-, y]", "x=2,y=3"), ElementsAre("Slice y", "Permute x,y", "AllGather x"));
  EXPECT_THAT(steps("[x, -]", "[y, -]", "x=2,y=2"), ElementsAre("Permute x,y")) << "a gather moves as much";
  EXPECT_THAT(steps("[{x,y}, -]", "[{y,x}, -]", "x=2,y=3"), ElementsAre("AllToAll y", "AllToAll x", "AllToAll y,x"))
      << "the pieces differ in size, so that they go by way of the other dimension";
}

TEST(ReshardPlan, ScattersASumIntoPiecesOfPieces) {
  EXPECT_THAT(steps("[x, -] partial(sum:y)", "[y, -]", "x=2,y=2"),
              ElementsAre("ReduceScatter y", "Permute x,y", "AllGather x"));
  EXPECT_THAT(steps("[x, -] partial(sum:y)", "[{y,x}, -]", "x=2,y=2"), ElementsAre("ReduceScatter y", "Permute x,y"));
  EXPECT_THAT(steps("[x, -] partial(sum:y)", "[y, -]", "x=2,y=3"),
              ElementsAre("ReduceScatter y", "AllGather x", "AllToAll y"))
      << "eight rows make no six equal pieces, but the columns can be scattered";
}

TEST(ReshardPlan, ExchangesTheAxesOfTwoDimensionsByOnePermutation) {
  EXPECT_THAT(steps("[x, y]", "[y, x]", "x=2,y=2"), ElementsAre("Permute x,y"));
}

TEST(ReshardPlan, MovesSeveralAxesByOneAllToAll) {
  EXPECT_THAT(steps("[{x,y}, -]", "[-, {x,y}]", "x=2,y=2"), ElementsAre("AllToAll x,y"));
}

TEST(ReshardPlan, ScattersASumOverSeveralAxesAtOnce) {
  EXPECT_THAT(steps("[-, -] partial(sum:x, sum:y)", "[{y,x}, -]", "x=2,y=2"), ElementsAre("ReduceScatter y,x"));
}

TEST(ReshardPlan, SlicesWhatItCanBeforeItGathersPartsThatDoNotLineUp) {
  EXPECT_THAT(steps("[-, 3{x}*4]", "[y, 2{x}*6]", "x=2,y=2"), ElementsAre("Slice y", "AllGather x", "Slice x"));
}

TEST(ReshardPlan, GathersTheMinorDigitsOfAnAxisOnly) {
  EXPECT_THAT(steps("[x, -]", "[x:(1)2, -]", "x=4"), ElementsAre("AllGather x:(2)2"));
}

TEST(ReshardPlan, ScattersASumOverTheDigitsOfItsAxis) {
  EXPECT_THAT(steps("[-, -] partial(sum:x)", "[2{x:(1)2}*4{x:(2)2}, -]", "x=4"),
              ElementsAre("ReduceScatter x:(1)2", "ReduceScatter x:(2)2"));
  EXPECT_THAT(steps("[-, -] partial(sum:x)", "[x:(2)2, -]", "x=4"),
              ElementsAre("ReduceScatter x:(2)2", "AllReduce x:(1)2"));
}

TEST(ReshardPlan, SlicesBeforeItMoves) {
  EXPECT_THAT(steps("[x, -]", "[-, {y,x}]", "x=2,y=2"), ElementsAre("Slice y", "AllToAll x"));
}

TEST(ReshardPlan, ReachesAPlaceFromWhateverTheAxisDoes) {
  EXPECT_THAT(steps("[-, -]", "[-, -] at(x=1)", "x=2"), ElementsAre("Keep x"));
  EXPECT_THAT(steps("[-, x]", "[-, -] at(x=1)", "x=2"), ElementsAre("Gather x"));
  EXPECT_THAT(steps("[-, -] partial(sum:x)", "[-, -] at(x=1)", "x=2"), ElementsAre("Reduce x"));
  EXPECT_THAT(steps("[-, -] at(x=0)", "[-, -] at(x=1)", "x=2"), ElementsAre("Permute x"));
}

TEST(ReshardPlan, LeavesAPlaceForWhateverTheAxisShallDo) {
  EXPECT_THAT(steps("[-, -] at(x=1)", "[-, -]", "x=2"), ElementsAre("Broadcast x"));
  EXPECT_THAT(steps("[-, -] at(x=1)", "[-, x]", "x=2"), ElementsAre("Scatter x"));
  EXPECT_THAT(steps("[-, -] at(x=0)", "[-, -] at(y=1)", "x=2,y=2"), ElementsAre("Keep y", "Broadcast x"));
}

TEST(ReshardPlan, MovesShardsBetweenPlaces) {
  EXPECT_THAT(steps("[-, -] at(x=0)", "[y, -] at(x=1)", "x=2,y=2"), ElementsAre("Slice y", "Permute x"));
  EXPECT_THAT(steps("[y, -] at(x=0)", "[-, -] at(x=1)", "x=2,y=2"), ElementsAre("Permute x", "AllGather y"));
  EXPECT_THAT(steps("[{y,x}, -]", "[-, -] at(x=1)", "x=2,y=2"), ElementsAre("Gather x", "AllGather y"));
  EXPECT_THAT(steps("[{x,y}, -]", "[-, -] at(x=1)", "x=2,y=2"), ElementsAre("AllGather y", "Gather x"));
}

TEST(ReshardPlan, LetsGoBeforeItWorks) {
  EXPECT_THAT(steps("[-, -] partial(sum:y)", "[-, -] at(x=1)", "x=2,y=2"), ElementsAre("Keep x", "AllReduce y"));
}

TEST(ReshardBytes, AreThoseThatARankReceives) {
  Mesh mesh = Mesh::parse("x=4");
  auto bytes = [&](std::string_view from, std::string_view to) {
    Expr sum = 0;
    for (const ReshardStep& step : plan_reshard(read(from, mesh), read(to, mesh)))
      sum = sum + bytes_received(step, DType::float32, mesh);
    return sum.constant().value();
  };
  EXPECT_EQ(bytes("[-, -]", "[x, -]"), 0);
  EXPECT_EQ(bytes("[x, -]", "[-, -]"), 4 * 96 * 3 / 4);
  EXPECT_EQ(bytes("[x, -]", "[-, x]"), 4 * 24 * 3 / 4);
  EXPECT_EQ(bytes("[-, -] partial(sum:x)", "[-, -]"), 2 * 4 * 96 * 3 / 4);
  EXPECT_EQ(bytes("[-, -] partial(sum:x)", "[x, -]"), 4 * 96 * 3 / 4);
  EXPECT_EQ(bytes("[-, -]", "[-, -] at(x=3)"), 0);
  EXPECT_EQ(bytes("[-, -] at(x=0)", "[-, -] at(x=3)"), 4 * 96);
  EXPECT_EQ(bytes("[-, -] at(x=0)", "[-, -]"), 4 * 96);
  EXPECT_EQ(bytes("[-, -] at(x=0)", "[x, -]"), 4 * 24);
  EXPECT_EQ(bytes("[x, -]", "[-, -] at(x=0)"), 4 * 96 * 3 / 4);
}

// A gradient split over tp that is stored over dp: a scatter, a permutation and a gather of pieces of 1/8.
TEST(ReshardBytes, OfASumThatChangesItsAxisAreFew) {
  Mesh mesh = Mesh::parse("dp=4,tp=2");
  Expr sum = 0;
  for (const ReshardStep& step : plan_reshard(read("[tp, -] partial(sum:dp)", mesh), read("[dp, -]", mesh)))
    sum = sum + bytes_received(step, DType::float32, mesh);
  EXPECT_EQ(sum.constant().value(), 4 * (48 * 3 / 4 + 12 + 12));
}

// A program that takes a whole input laid out as `from` (over axes that `from` is partial over every rank holds all of
// it), changes it into `to`, and gives the whole again.
std::shared_ptr<Program> reshard_program(const Mesh& mesh, const Sharding& from, const Sharding& to, const Dims& dims) {
  auto program = std::make_shared<Program>();
  program->mesh = mesh;
  program->graph = std::make_unique<Graph>();
  TensorType global{DType::float32, Shape(dims.begin(), dims.end())};
  Sharding given = from;
  given.partial.clear();
  given.at.clear();
  Value* value = program->graph->add_input("x", {global.dtype, local_shape(from, mesh)});
  program->inputs.push_back({"x", value});
  program->placements[value] = {"x", global, given};
  for (const ReshardStep& step : plan_reshard(from, to)) value = emit_reshard(*program, value, step, global, "x");
  Sharding reached = to;
  program->placements[value] = {"x", global, reached};
  program->graph->outputs.push_back(value);
  program->outputs.push_back({"y", value});
  return program;
}

// The plan reaches its goal for every pair, and the data arrive: sums over n ranks that all hold x are n·x.
// The second shape has one dimension, along which axes often meet in another order.
TEST(Reshard, EveryRandomPairReachesItsGoalWithTheRightData) {
  int reordered = 0;
  for (uint64_t seed = 0; seed < 800; ++seed) {
    std::mt19937_64 engine(seed);
    const Dims dims = seed % 2 ? Dims{4, 6, 5} : Dims{24};
    const Shape shape(dims.begin(), dims.end());
    std::vector<float> values(static_cast<size_t>(count_of(dims)));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
    Tensor whole = Tensor::of(DType::float32, dims, values);
    std::vector<Mesh> meshes = {Mesh::parse("x=2"),     Mesh::parse("x=5"),     Mesh::parse("x=4,y=2"),
                                Mesh::parse("x=3,y=2"), Mesh::parse("x=6,y=2"), Mesh::parse("x=2,y=3,z=2")};
    const Mesh& mesh = meshes[any_of(meshes.size(), engine)];
    Sharding from = random_sharding(shape, mesh, engine), to = random_sharding(shape, mesh, engine);
    float times = 1;
    for (Sharding* side : {&from, &to})
      for (const MeshAxis& axis : mesh.axes())
        if (!side->uses(AxisRef::whole(axis)) && chance(engine, 3))
          side->at.push_back(
              {AxisRef::whole(axis), static_cast<int64_t>(any_of(static_cast<size_t>(axis.size), engine))});
    for (const MeshAxis& axis : mesh.axes())
      if (!from.uses(AxisRef::whole(axis)) && chance(engine, 5)) {
        from.partial.push_back({AxisRef::whole(axis), Reduction::sum});
        times *= static_cast<float>(axis.size);
      }
    SCOPED_TRACE(fmt::format("seed {}, mesh {}: {} to {}", seed, mesh.str(), from.str(mesh), to.str(mesh)));
    auto plan = plan_reshard(from, to);
    Sharding reached = plan.empty() ? from : plan.back().after;
    EXPECT_TRUE(same_layout(reached, to)) << "it ends at " << reached.str(mesh);
    for (const ReshardStep& step : plan) reordered += step.kind == ReshardKind::reorder;
    runtime::ExecutorOptions options;
    options.threads_per_rank = 1;
    auto outputs = runtime::Executor(reshard_program(mesh, from, to, dims), options).run({{"x", whole}});
    std::vector<float> expected = values;
    for (float& value : expected) value *= times;
    auto actual = outputs.at("y").as<float>();
    EXPECT_EQ(std::vector<float>(actual.begin(), actual.end()), expected);
    if (HasFailure()) return;
  }
  EXPECT_GT(reordered, 40);
}

}  // namespace
}  // namespace tessera::spmd
