// Programs written with other engines' collectives: their nodes, that they run like ours when read back, and programs
// that these dialects cannot express.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "api/small_model.h"
#include "tessera/onnx/import.h"

namespace tessera {
namespace {

using test::TemporaryFolder;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Program compiled(const TemporaryFolder& folder, std::string_view text, const std::string& mesh,
                 const std::vector<std::string>& annotations = {}) {
  Plan plan;
  for (const std::string& annotation : annotations) plan.annotations.push_back({annotation, "test"});
  return compile(Model::load(test::write_model(folder, text)), Mesh::parse(mesh), plan);
}

std::filesystem::path written(const TemporaryFolder& folder, const Program& program, Dialect dialect) {
  WriteOptions options;
  options.dialect = dialect;
  program.write(folder / "out", options);
  return folder / "out";
}

std::string refusal(const TemporaryFolder& folder, const Program& program, Dialect dialect) {
  try {
    written(folder, program, dialect);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    EXPECT_FALSE(std::filesystem::exists(folder / "out"));
    return error.what();
  }
  return "";
}

std::vector<const Node*> nodes_of(const OnnxModel& model, std::string_view op_type, std::string_view domain) {
  std::vector<const Node*> found;
  for (const auto& node : model.graph->nodes())
    if (node->is(op_type, domain)) found.push_back(node.get());
  return found;
}

std::set<std::string> names_of(const std::vector<Attribute>& attributes) {
  std::set<std::string> names;
  for (const Attribute& attribute : attributes) names.insert(attribute.name);
  return names;
}

std::set<std::string> domains_of(const OnnxModel& model) {
  std::set<std::string> domains;
  for (const auto& [domain, version] : model.opset_imports) domains.insert(domain);
  return domains;
}

void expect_same_bits(const Program& program, const std::filesystem::path& folder, const Tensors& inputs) {
  const Tensors expected = Session(program).run(inputs), actual = Session(Program::read(folder)).run(inputs);
  for (const auto& [name, tensor] : expected)
    EXPECT_EQ(std::memcmp(tensor.data, actual.at(name).data, tensor.bytes), 0) << name;
}

// x is split along its rows, w along its columns: y is gathered along its columns.
constexpr std::string_view kColumns = R"(
columns (float[6, 8] x) => (float[6, 12] y) <float[8, 12] w> {
  y = MatMul (x, w)
})";
// The split moves from one dimension of h to the other.
constexpr std::string_view kTurned = R"(
turned (float[8, 12] x) => (float[8, 12] y) {
  h = Relu (x)
  y = Neg (h)
})";

TEST(Dialects, OnnxRuntimesAllReduceHasNoAttributes) {
  TemporaryFolder folder;
  const Program program = compiled(folder, test::kPair, "tp=2");
  const auto out = written(folder, program, Dialect::ort);
  const OnnxModel model = import_model(out / "rank_0.onnx");
  const auto nodes = nodes_of(model, "AllReduce", "com.microsoft");
  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_THAT(nodes[0]->attributes, IsEmpty());
  EXPECT_EQ(nodes[0]->inputs.size(), 1u);
  EXPECT_EQ(nodes[0]->outputs.size(), 1u);
  EXPECT_THAT(domains_of(model), ElementsAre("", "com.microsoft"));
  EXPECT_EQ(model.opset_imports.at("com.microsoft"), 1);
  EXPECT_EQ(model.graph->outputs.size(), 1u) << "there are no tokens";
  expect_same_bits(program, out, {{"x", test::ramp({3, 8})}});
}

TEST(Dialects, OnnxRuntimesAllGatherSaysAxisAndGroupSize) {
  TemporaryFolder folder;
  const Program program = compiled(folder, kColumns, "tp=3", {"w=[-,tp]", "y=[-,-]"});
  const auto out = written(folder, program, Dialect::ort);
  const OnnxModel model = import_model(out / "rank_0.onnx");
  const auto nodes = nodes_of(model, "AllGather", "com.microsoft");
  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_THAT(names_of(nodes[0]->attributes), ElementsAre("axis", "group_size"));
  EXPECT_EQ(nodes[0]->get_int("axis", -1), 1);
  EXPECT_EQ(nodes[0]->get_int("group_size", -1), 3);
  expect_same_bits(program, out, {{"x", test::ramp({6, 8})}});
}

TEST(Dialects, AnExchangeOfAnyTwoDimensionsBecomesOneOfDimensionZero) {
  for (Dialect dialect : {Dialect::ort, Dialect::tensorrt})
    for (auto [from, to] : {std::pair("h=[tp,-]", "y=[-,tp]"), std::pair("h=[-,tp]", "y=[tp,-]")}) {
      TemporaryFolder folder;
      const Program program = compiled(folder, kTurned, "tp=2", {from, to});
      const auto out = written(folder, program, dialect);
      const OnnxModel model = import_model(out / "rank_0.onnx");
      const bool ort = dialect == Dialect::ort;
      const auto nodes = ort ? nodes_of(model, "AllToAll", "com.microsoft") : nodes_of(model, "DistCollective", "");
      bool exchanged = false;
      for (const Node* node : nodes) {
        if (!ort && node->get_string("collective_operation", "") != "all_to_all") continue;
        exchanged = true;
        EXPECT_EQ(node->get_int(ort ? "group_size" : "nb_rank", -1), 2);
      }
      EXPECT_TRUE(exchanged) << from << " " << to;
      expect_same_bits(program, out, {{"x", test::ramp({8, 12})}});
    }
}

TEST(Dialects, TensorRTsDistCollectiveSaysOperationReductionAndRanks) {
  TemporaryFolder folder;
  const Program program = compiled(folder, test::kPair, "tp=2");
  const auto out = written(folder, program, Dialect::tensorrt);
  const OnnxModel model = import_model(out / "rank_0.onnx");
  const auto nodes = nodes_of(model, "DistCollective", "");
  ASSERT_EQ(nodes.size(), 1u);
  const Node& node = *nodes[0];
  EXPECT_THAT(names_of(node.attributes),
              ElementsAre("collective_operation", "group_size", "groups", "nb_rank", "reduce_op", "root"));
  EXPECT_EQ(node.get_string("collective_operation", ""), "all_reduce");
  EXPECT_EQ(node.get_string("reduce_op", ""), "sum");
  EXPECT_EQ(node.get_int("root", 0), -1);
  EXPECT_EQ(node.get_int("nb_rank", 0), 2);
  EXPECT_THAT(node.get_ints("groups"), IsEmpty());
  EXPECT_EQ(node.get_int("group_size", -1), 0);
  EXPECT_THAT(domains_of(model), ElementsAre(""));
  expect_same_bits(program, out, {{"x", test::ramp({3, 8})}});
}

TEST(Dialects, TensorRTGathersAlongDimensionZeroOnly) {
  TemporaryFolder folder;
  const Program program = compiled(folder, kColumns, "tp=3", {"w=[-,tp]", "y=[-,-]"});
  const auto out = written(folder, program, Dialect::tensorrt);
  const OnnxModel model = import_model(out / "rank_0.onnx");
  const auto nodes = nodes_of(model, "DistCollective", "");
  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_EQ(nodes[0]->get_string("reduce_op", ""), "none");
  EXPECT_EQ(to_string(nodes[0]->input(0)->shape()), "[4, 6]");
  EXPECT_EQ(to_string(nodes[0]->output()->shape()), "[12, 6]");
  expect_same_bits(program, out, {{"x", test::ramp({6, 8})}});
}

TEST(Dialects, TensorRTsGroupsAreTheRanksOfTheAxis) {
  TemporaryFolder folder;
  const Program program = compiled(folder, test::kPair, "dp=2,tp=2");
  const auto out = written(folder, program, Dialect::tensorrt);
  for (int rank = 0; rank < 4; ++rank) {
    const OnnxModel model = import_model(out / ("rank_" + std::to_string(rank) + ".onnx"));
    const auto nodes = nodes_of(model, "DistCollective", "");
    ASSERT_EQ(nodes.size(), 1u);
    const int64_t first = rank / 2 * 2;
    EXPECT_THAT(nodes[0]->get_ints("groups"), ElementsAre(first, first + 1));
    EXPECT_EQ(nodes[0]->get_int("group_size", -1), 2);
    EXPECT_EQ(nodes[0]->get_int("nb_rank", -1), 2);
  }
  expect_same_bits(program, out, {{"x", test::ramp({4, 8})}});
}

TEST(Dialects, WhatCannotBeExpressedIsAnErrorWithTheNodeAndTheFix) {
  TemporaryFolder folder;
  EXPECT_THAT(
      refusal(folder, compiled(folder, test::kPair, "dp=2,tp=2"), Dialect::ort),
      HasSubstr("its group is the ranks 0, 1, but ONNX Runtime communicates among all 4; use a mesh of one axis"));
  EXPECT_THAT(refusal(folder, compiled(folder, kColumns, "tp=5", {"w=[-,tp]", "y=[-,-]"}), Dialect::ort),
              HasSubstr("its members' blocks have 3, 3, 2, 2, 2 elements, and ONNX Runtime moves equal blocks only"));
  EXPECT_THAT(refusal(folder, compiled(folder, kColumns, "tp=5", {"w=[-,tp]", "y=[-,-]"}), Dialect::tensorrt),
              HasSubstr("TensorRT moves equal blocks only"));
  EXPECT_THAT(refusal(folder, compiled(folder, kColumns, "tp=2", {"w=[tp,-]", "y=[tp,-]"}), Dialect::ort),
              HasSubstr("and no ReduceScatter; choose layouts that need none, or another `dialect`"));
  EXPECT_EQ(refusal(folder, compiled(folder, kColumns, "tp=2", {"w=[tp,-]", "y=[tp,-]"}), Dialect::tensorrt), "");
}

}  // namespace
}  // namespace tessera
