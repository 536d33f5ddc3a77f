// Mixtures of experts in the forms that exporters write: one operator in all of them, and the exporters' answers on
// meshes that split experts, hidden elements and tokens. tests/models/export_moe.py made the models.
#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/answers.h"

namespace tessera::compiler {
namespace {

using Counts = std::map<std::string, int>;

Counts operators(const Graph& graph, std::string_view domain) {
  Counts counts;
  for (const auto& node : graph.nodes())
    if (node->domain == domain) ++counts[node->op_type];
  return counts;
}

std::string text_of(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

int mixtures_in(const std::string& model) {
  return model == "moe" ? 2 : 1;
}

class Experts : public testing::TestWithParam<std::string> {};

TEST_P(Experts, AreRaisedFromWhatExportersWrite) {
  const Compiled compiled = compile_on(GetParam(), "tp=1", "");
  EXPECT_EQ(operators(*compiled.model->graph, "tessera"), (Counts{{"Experts", mixtures_in(GetParam())}}));
  for (const auto& node : compiled.model->graph->nodes()) EXPECT_NE(node->op_type, "NonZero");
}

TEST_P(Experts, GiveTheExportersAnswers) {
  for (const std::string mesh : {"tp=1", "ep=2", "ep=3", "ep=4", "tp=2", "tp=5", "ep=2,tp=2", "dp=2,ep=2", "ep=8"}) {
    SCOPED_TRACE(mesh);
    expect_answers(GetParam(), mesh, "");
  }
  expect_answers(GetParam(), "dp=2", "dp+expert:dp");
  expect_answers(GetParam(), "x=2,tp=2", "dp:x+expert:x+megatron");
  expect_answers(GetParam(), "ep=2,tp=2", "expert+megatron+sequence");
}

TEST_P(Experts, AddUpOnceForEachMixture) {
  for (const std::string mesh : {"ep=2", "ep=3"})
    EXPECT_EQ(operators(*compile_on(GetParam(), mesh, "").program->graph, spmd::kCommDomain),
              (Counts{{"AllReduce", mixtures_in(GetParam())}}))
        << mesh;
}

INSTANTIATE_TEST_SUITE_P(Forms, Experts,
                         testing::Values("moe", "moe-gpt-oss", "moe-nonzero", "moe-masks", "moe-einsum", "moe-batch",
                                         "moe-apart", "qmoe", "qmoe-columns"),
                         [](const auto& info) { return text_of(info.param); });

// A rank of ep=3 holds two of six experts, and the third part of the bytes of their matrices.
TEST(ExpertStates, LieOnTheRanksOfTheirExperts) {
  for (const std::string model : {"moe-nonzero", "moe-batch"}) {
    const Compiled compiled = compile_on(model, "ep=3", "");
    int split = 0;
    for (const auto& [state, data] : compiled.program->initial) {
      const auto& placed = compiled.program->placement(state);
      if (placed.global.shape->size() == 3 || placed.name.find('*') != std::string::npos) {
        EXPECT_TRUE(placed.sharding.dims[0].is_split()) << model << ": " << placed.name;
        ++split;
      }
    }
    EXPECT_GE(split, 2) << model;
  }
}

// No rank makes floats of codes, and each holds the bytes of its experts or hidden elements only.
TEST(ExpertCodes, AreSplitAsTheyLie) {
  for (const std::string model : {"qmoe", "qmoe-columns"})
    for (const std::string mesh : {"ep=2", "tp=2"}) {
      SCOPED_TRACE(model + " on " + mesh);
      const Compiled compiled = compile_on(model, mesh, "");
      int split = 0;
      for (const auto& [state, data] : compiled.program->initial) {
        const auto& placed = compiled.program->placement(state);
        if (placed.global.dtype != DType::uint8 || placed.global.shape->size() != 3) continue;
        const std::vector<DimSharding>& dims = placed.sharding.dims;
        if ((*placed.global.shape)[2].constant().value_or(0) >= 16) {
          EXPECT_TRUE(std::any_of(dims.begin(), dims.end(), [](const DimSharding& dim) { return dim.is_split(); }))
              << placed.name;
          ++split;
        }
      }
      EXPECT_EQ(split, 2);
      EXPECT_EQ(operators(*compiled.program->graph, spmd::kCommDomain), (Counts{{"AllReduce", 1}}));
    }
}

// A choice may fall otherwise in 16 bits, and then the result is another one; but not because of the mesh.
TEST(ExpertStates, AreRoundedWhereTheyAreTaken) {
  for (const std::string model : {"moe-nonzero", "moe-masks"})
    for (const DType compute : {DType::bfloat16, DType::float16}) {
      const auto inputs = read_npz(folder_of(model) / "inputs_0.npz");
      const auto one = runtime::Executor(compile_on(model, "tp=1", "", compute).program, {}).run(inputs);
      const auto two = runtime::Executor(compile_on(model, "ep=2", "", compute).program, {}).run(inputs);
      const auto want = one.at("y").as<float>(), got = two.at("y").as<float>();
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_NEAR(got[i], want[i], tolerance_of(compute).relative * 10) << model << " element " << i;
    }
}

// Tokens and experts over one axis: tokens are gathered, and the sums scattered to where the tokens were.
TEST(ExpertsOfSplitTokens, GatherTokensAndScatterResults) {
  const Compiled compiled = compile_on("moe", "dp=2", "dp+expert:dp");
  const Counts counts = operators(*compiled.program->graph, spmd::kCommDomain);
  EXPECT_EQ(counts, (Counts{{"AllGather", 6}, {"ReduceScatter", 2}}));  // tokens, choices and weights of each layer
  for (const auto& record : compiled.program->reshards) {
    const Value* value = compiled.model->graph->find(record.value);
    EXPECT_FALSE(value && value->kind == ValueKind::state && !record.bytes.is(0)) << record.value << " is moved";
  }
}

}  // namespace
}  // namespace tessera::compiler
