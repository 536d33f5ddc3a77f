#include "tessera/passes/hierarchical.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "mesh/random_sharding.h"
#include "tessera/ir/text.h"
#include "tessera/passes/levels.h"
#include "tessera/runtime/executor.h"
#include "tessera/spmd/print.h"

namespace tessera::passes {
namespace {

using spmd::Program;
using spmd::ReshardKind;
using spmd::ReshardStep;
using testing::ElementsAre;
using testing::HasSubstr;

// Levels of the given sizes, the nearest first, on every axis of a mesh whose far links are so slow that going by
// levels always pays.
Topology slow_far_links(const Mesh& mesh) {
  Topology topology;
  double bandwidth = 1e12;
  for (size_t a = mesh.axes().size(); a-- > 0;) {
    Topology::Axis axis{mesh.axes()[a].name, {}};
    for (int64_t size = mesh.axes()[a].size, factor = 2; size > 1; ++factor)
      for (; size % factor == 0; size /= factor) axis.levels.push_back({factor, 0, bandwidth /= 1e4, ""});
    if (axis.levels.empty()) axis.levels.push_back({1, 0, bandwidth, ""});
    topology.axes.push_back(axis);
  }
  topology.require_fits(mesh);
  return topology;
}

// A program that takes a whole input laid out as `step.before` (over axes that it is partial over every rank holds all
// of it), and takes the step.
std::shared_ptr<Program> program_of(const Mesh& mesh, const ReshardStep& step, const Dims& dims) {
  auto program = std::make_shared<Program>();
  program->mesh = mesh;
  program->graph = std::make_unique<Graph>();
  const TensorType global{DType::float32, Shape(dims.begin(), dims.end())};
  Value* value = program->graph->add_input("x", {global.dtype, local_shape(step.before, mesh)});
  program->inputs.push_back({"x", value});
  // An input is cut like any other value; values computed from it may be partial.
  Sharding given = step.before;
  given.partial.clear();
  program->placements[value] = {"x", global, given};
  Node* same = program->graph->add_node("Identity", {value}, {"x.partial"});
  value = same->outputs[0];
  value->type = program->inputs[0].value->type;
  program->placements[value] = {"x", global, step.before};
  value = emit_reshard(*program, value, step, global, "x");
  program->graph->outputs.push_back(value);
  program->outputs.push_back({"y", value});
  return program;
}

Tensor run(const std::shared_ptr<Program>& program, const Tensor& x) {
  runtime::ExecutorOptions options;
  options.threads_per_rank = 1;
  return runtime::Executor(program, options).run({{"x", x}}).at("y");
}

int count(const Program& program, std::string_view op) {
  int found = 0;
  for (const auto& node : program.graph->nodes()) found += node->op_type == op;
  return found;
}

// All steps between two random layouts that levels support.
std::vector<ReshardStep> random_steps(const Shape& shape, const Mesh& mesh, std::mt19937_64& engine) {
  Sharding from = random_sharding(shape, mesh, engine), to = random_sharding(shape, mesh, engine);
  for (Sharding* sharding : {&from, &to})
    for (DimSharding& dim : sharding->dims) dim.open = false;
  for (const MeshAxis& axis : mesh.axes())
    if (!from.uses(AxisRef::whole(axis)) && chance(engine, 7))
      from.partial.push_back({AxisRef::whole(axis), chance(engine, 3) ? Reduction::max : Reduction::sum});
  return spmd::plan_reshard(from, to);
}

TEST(Hierarchical, equals_the_flat_program_to_the_bit_on_sums_that_are_exact) {
  const Dims dims{4, 6, 12};
  const Shape shape(dims.begin(), dims.end());
  std::vector<float> values(static_cast<size_t>(count_of(dims)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 97) - 40;
  const Tensor x = Tensor::of(DType::float32, dims, values);
  std::map<ReshardKind, int> rewritten;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    std::mt19937_64 engine(seed);
    const std::vector<Mesh> meshes = {Mesh::parse("x=4"), Mesh::parse("x=8"), Mesh::parse("x=6"),
                                      Mesh::parse("x=2,y=3"), Mesh::parse("x=4,y=2")};
    const Mesh& mesh = meshes[any_of(meshes.size(), engine)];
    const Topology topology = slow_far_links(mesh);
    for (const ReshardStep& step : random_steps(shape, mesh, engine)) {
      if (step.after.is_partial()) continue;  // no output
      auto flat = program_of(mesh, step, dims), by_level = program_of(mesh, step, dims);
      std::vector<std::string> notes;
      Context context{topology, notes};
      hierarchical(*by_level, context);
      if (notes.empty()) continue;
      ++rewritten[step.kind];
      SCOPED_TRACE(fmt::format("seed {}, {}: {} to {}\n{}", seed, step.str(mesh), step.before.str(mesh),
                               step.after.str(mesh), print_program(*by_level)));
      EXPECT_EQ(by_level->outputs[0].value->type, flat->outputs[0].value->type);
      const Tensor expected = run(flat, x), actual = run(by_level, x);
      ASSERT_EQ(actual.dims, expected.dims);
      auto a = actual.as<float>(), e = expected.as<float>();
      ASSERT_TRUE(std::equal(a.begin(), a.end(), e.begin(), e.end()));
    }
  }
  EXPECT_GT(rewritten[ReshardKind::all_reduce], 10);
  EXPECT_GT(rewritten[ReshardKind::all_gather], 10);
  EXPECT_GT(rewritten[ReshardKind::reduce_scatter], 3);
}

ReshardStep all_reduce(const Mesh& mesh, const Shape& shape) {
  ReshardStep step{ReshardKind::all_reduce};
  step.before = step.after = Sharding::replicated(shape);
  for (const MeshAxis& axis : mesh.axes()) {
    step.axes.push_back(AxisRef::whole(axis));
    step.before.partial.push_back({AxisRef::whole(axis), Reduction::sum});
  }
  return step;
}

TEST(Hierarchical, nests_as_many_levels_as_there_are) {
  const Mesh mesh = Mesh::parse("x=8");
  auto program = program_of(mesh, all_reduce(mesh, {16}), {16});
  std::vector<std::string> notes;
  const Topology topology = slow_far_links(mesh);
  Context context{topology, notes};
  hierarchical(*program, context);
  std::vector<std::string> steps;
  for (const auto& node : program->graph->nodes())
    if (node->domain == spmd::kCommDomain)
      steps.push_back(node->op_type + " " + node->get<std::vector<std::string>>("axes")->front());
  EXPECT_THAT(steps, ElementsAre("ReduceScatter x:(4)2", "ReduceScatter x:(2)2", "AllReduce x:(1)2", "AllGather x:(2)2",
                                 "AllGather x:(4)2"));
}

TEST(Hierarchical, keeps_the_names_and_places_of_what_it_replaces) {
  const Mesh mesh = Mesh::parse("x=4");
  auto program = program_of(mesh, all_reduce(mesh, {16}), {16});
  const std::string name = program->outputs[0].value->name;
  std::vector<std::string> notes;
  const Topology topology = slow_far_links(mesh);
  Context context{topology, notes};
  hierarchical(*program, context);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("all-reduce over x is hierarchical: 2 by x:(2)2, then 2 by x:(1)2")));
  EXPECT_EQ(program->outputs[0].value->name, name);
  EXPECT_EQ(program->graph->outputs, std::vector<Value*>{program->outputs[0].value});
  for (const auto& [value, placement] : program->placements)
    EXPECT_EQ(value->shape(), local_shape(placement.sharding, mesh)) << value->name;
}

TEST(Hierarchical, leaves_scalars_and_unknown_links_alone) {
  const Mesh mesh = Mesh::parse("x=4");
  const Topology known = slow_far_links(mesh), unknown;
  for (auto [shape, topology] : {std::pair<Shape, const Topology*>{{}, &known}, {{16}, &unknown}}) {
    Dims dims;
    for (const Expr& extent : shape) dims.push_back(*extent.constant());
    auto program = program_of(mesh, all_reduce(mesh, shape), dims);
    std::vector<std::string> notes;
    Context context{*topology, notes};
    hierarchical(*program, context);
    EXPECT_EQ(count(*program, "AllReduce"), 1);
    EXPECT_EQ(count(*program, "ReduceScatter"), 0);
    EXPECT_TRUE(notes.empty());
  }
}

TEST(Hierarchical, tells_of_layout_changes_in_the_steps_that_are_taken) {
  const Mesh mesh = Mesh::parse("x=4");
  const ReshardStep step = all_reduce(mesh, {16});
  auto program = program_of(mesh, step, {16});
  program->reshards.push_back({"x", "the output", step.before, step.after, {"AllReduce x"}, 0});
  std::vector<std::string> notes;
  const Topology topology = slow_far_links(mesh);
  Context context{topology, notes};
  hierarchical(*program, context);
  EXPECT_THAT(program->reshards[0].steps, ElementsAre("ReduceScatter x:(2)2", "AllReduce x:(1)2", "AllGather x:(2)2"));
}

}  // namespace
}  // namespace tessera::passes
