// Former defects between partitioner and runtime, each with a small example.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/ir/text.h"
#include "tessera/ops/op.h"
#include "tessera/runtime/executor.h"
#include "tessera/spmd/partition/partition.h"

namespace tessera::runtime {
namespace {

using testing::HasSubstr;

std::shared_ptr<const spmd::Program> program_from(const std::string& text, const std::string& mesh_text,
                                                  const std::map<std::string, std::string>& layouts) {
  OnnxModel model = parse_text(text);
  ops::infer_types(*model.graph);
  Mesh mesh = Mesh::parse(mesh_text);
  std::vector<spmd::Annotation> annotations;
  for (const auto& [name, sharding] : layouts) {
    const Value* value = model.graph->find(name);
    annotations.push_back({value, parse_sharding(sharding, value->shape(), mesh, name), "test"});
  }
  spmd::Layout layout(*model.graph, {});
  spmd::propagate(layout, annotations, mesh);
  spmd::Decisions decisions = spmd::decide(*model.graph, layout, mesh, {});
  return std::make_shared<spmd::Program>(spmd::partition(*model.graph, layout, decisions, mesh, {}));
}

TEST(Executor, ScattersAValueIntoItself) {
  // The operand's memory may be taken over, but not while the updates are read from it.
  auto program = program_from(R"(<ir_version: 10, opset_import: ["" : 24]>
    g (float[4] x) => (float[4] y) <int64[4] back = {3, 2, 1, 0}> {
      r = Relu (x)
      y = ScatterElements <axis = 0> (r, back, r)
    })",
                              "tp=1", {});
  Executor executor(program, {});
  auto outputs = executor.run({{"x", Tensor::of<float>(DType::float32, {4}, {1, 2, 3, 4})}});
  EXPECT_THAT(outputs.at("y").as<float>(), testing::ElementsAre(4, 3, 2, 1));
}

TEST(Executor, RefusesExtentsThatOnlyShardsAgreeOn) {
  // Over dp=2 the shards of 4 and the whole of 2 have two rows each.
  auto program = program_from(R"(<ir_version: 10, opset_import: ["" : 24]>
    g (float[a, 3] x, float[b, 3] z) => (float[a, 3] y) {
      y = Add (x, z)
    })",
                              "dp=2", {{"x", "[dp,-]"}});
  Executor executor(program, {});
  auto rows = [](int64_t count) { return Tensor::zeros(DType::float32, {count, 3}); };
  try {
    executor.run({{"x", rows(4)}, {"z", rows(2)}});
    FAIL() << "extents 4 and 2 were added";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    EXPECT_THAT(error.what(), HasSubstr("must be equal"));
  }
  EXPECT_EQ(executor.run({{"x", rows(4)}, {"z", rows(4)}}).at("y").dims, (Dims{4, 3}));
}

TEST(Executor, KeepsValuesThatAreViewsOfItsInputs) {
  auto program = program_from(R"(<ir_version: 10, opset_import: ["" : 24]>
    g (float[4] x) => (float[2, 2] y) <int64[2] shape = {2, 2}> {
      v = Reshape (x, shape)
      y = Relu (v)
    })",
                              "tp=1", {});
  ExecutorOptions options;
  options.keep_all = true;
  Executor executor(program, options);
  executor.run(
      {{"x", Tensor::of<float>(DType::float32, {4}, {1, 2, 3, 4})}});  // the input's last holder is the executor
  EXPECT_THAT(executor.kept().front().value.as<float>(), testing::ElementsAre(1, 2, 3, 4));
}

}  // namespace
}  // namespace tessera::runtime
