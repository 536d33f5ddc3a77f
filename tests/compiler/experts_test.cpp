// Mixtures of experts in the forms that exporters write: one operator in all of them, and the exporters' answers on
// meshes that split experts, hidden elements and tokens. tests/models/export_moe.py made the models.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "compiler/answers.h"
#include "tessera/ir/text.h"

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
                                         "moe-apart", "moe-stacks", "moe-scan", "moe-chosen", "moe-rows", "qmoe",
                                         "qmoe-columns"),
                         [](const auto& info) { return text_of(info.param); });

// A mixture as Einsums whose dimensions are in any order on the way: t and s are tokens, z experts or choices, i, f and
// o elements of tokens, of hidden rows and of results.
struct Spelling {
  std::string tokens, hidden, results;
  bool gathers = false, biased = false;

  std::string name() const { return hidden + " " + results + (gathers ? " gathered" : "") + (biased ? " biased" : ""); }

  // A bias [z, f], or [tokens, z, f] if it is gathered, in the order of what it is added to.
  std::string add_bias(const std::string& sum, const std::string& to, const std::string& of,
                       const std::string& order) const {
    const std::string own = (gathers ? tokens : "") + "z" + (order.find('f') < order.size() ? "f" : "o");
    std::vector<size_t> permutation, missing;
    for (size_t d = 0; d < order.size(); ++d)
      if (const size_t at = own.find(order[d]); at < own.size())
        permutation.push_back(at);
      else
        missing.push_back(d);
    std::string text = fmt::format("  {0}t = Transpose <perm = [{1}]> ({2})\n", sum, fmt::join(permutation, ", "), of);
    if (missing.empty()) return text + fmt::format("  {0} = Add ({1}, {0}t)\n", sum, to);
    return text + fmt::format(
                      "  {0}a = Constant <value = int64[{3}] {{{2}}}> ()\n  {0}u = Unsqueeze ({0}t, {0}a)\n"
                      "  {0} = Add ({0}u, {1})\n",
                      sum, to, fmt::join(missing, ", "), missing.size());
  }

  std::string text() const {
    const std::string free = tokens.size() == 2 ? "t, 3" : "t", each = gathers ? tokens + "z" : "z";
    std::string nodes = "  w, i = TopK <axis = -1> (r, two)\n  rs = Shape (r)\n  zeros = ConstantOfShape (rs)\n";
    if (gathers)
      nodes +=
          "  c1 = Gather (w1, i)\n  c2 = Gather (w2, i)\n  d1 = Gather (b1, i)\n  d2 = Gather (b2, i)\n"
          "  weights = Identity (w)\n";
    else
      nodes +=
          "  c1 = Identity (w1)\n  c2 = Identity (w2)\n  d1 = Identity (b1)\n  d2 = Identity (b2)\n"
          "  weights = ScatterElements <axis = -1> (zeros, i, w)\n";
    nodes += fmt::format("  g = Einsum <equation = \"{}i,{}if->{}\"> (x, c1)\n", tokens, each, hidden);
    if (biased) nodes += add_bias("gb", "g", "d1", hidden);
    nodes += fmt::format("  h = Relu ({})\n  p = Einsum <equation = \"{},{}fo->{}\"> (h, c2)\n", biased ? "gb" : "g",
                         hidden, each, results);
    if (biased) nodes += add_bias("pb", "p", "d2", results);
    nodes += fmt::format("  y = Einsum <equation = \"{},{}z->{}o\"> ({}, weights)\n", results, tokens, tokens,
                         biased ? "pb" : "p");
    return fmt::format(
        "<ir_version: 10, opset_import: [\"\" : 24]>\n"
        "m (float[{0}, 4] x, float[{0}, 5] r) => (float[{0}, 4] y) <\n"
        "  float[5, 4, 6] w1, float[5, 6, 4] w2, float[5, 6] b1, float[5, 4] b2, int64[1] two = {{2}}, int64[1] last = "
        "{{-1}}\n"
        "> {{\n{1}}}\n",
        free, nodes);
  }
};

Tensor small_integers(Dims dims, std::mt19937& random) {
  Tensor tensor = Tensor::zeros(DType::float32, std::move(dims));
  auto* at = reinterpret_cast<float*>(tensor.mutable_data());
  for (int64_t i = 0; i < tensor.count(); ++i) at[i] = static_cast<float>(static_cast<int>(random() % 7) - 3);
  return tensor;
}

// However the dimensions are ordered, the mixture is one operator, and gives the bits of the products.
void expect_mixture(const Spelling& spelling, std::mt19937& random) {
  SCOPED_TRACE(spelling.name());
  OnnxModel model = parse_text(spelling.text());
  for (Value* state : model.graph->values_of(ValueKind::state))
    if (state->dtype() == DType::float32) state->data = small_integers(state->data.dims, random);
  const Dims dims = spelling.tokens.size() == 2 ? Dims{2, 3} : Dims{5};
  const auto rows = [&](int64_t width) {
    Dims all = dims;
    all.push_back(width);
    return small_integers(all, random);
  };
  const runtime::Executor::Tensors inputs = {{"x", rows(4)}, {"r", rows(5)}};
  CompileOptions options;
  options.mesh = Mesh::parse("tp=1");
  const Compiled raised = compile(model, options);
  EXPECT_EQ(operators(*raised.model->graph, "tessera"), (Counts{{"Experts", 1}})) << print_text(*raised.model);
  options.keep = {"h"};
  const Compiled plain = compile(model, options);
  EXPECT_EQ(operators(*plain.model->graph, "tessera"), Counts{});
  options.keep.clear();
  options.mesh = Mesh::parse("ep=2,tp=2");
  const auto want = runtime::Executor(plain.program, {}).run(inputs).at("y");
  for (const auto& program : {raised.program, compile(model, options).program}) {
    const auto got = runtime::Executor(program, {}).run(inputs).at("y");
    EXPECT_TRUE(std::ranges::equal(got.as<float>(), want.as<float>()));
  }
}

TEST(ExpertsAsEinsums, AreRaisedInEveryOrder) {
  constexpr unsigned kSeed = 11;
  std::mt19937 random(kSeed);
  SCOPED_TRACE(fmt::format("seed {}", kSeed));
  int count = 0;
  for (std::string hidden = "ftz"; const bool gathers : {false, true}) {
    do {
      std::string results = "otz";
      do expect_mixture({"t", hidden, results, gathers, ++count % 2 == 0}, random);
      while (std::next_permutation(results.begin(), results.end()));
    } while (std::next_permutation(hidden.begin(), hidden.end()));
  }
  for (const bool gathers : {false, true})
    for (const bool biased : {false, true})
      for (const auto& [hidden, results] : std::vector<std::pair<std::string, std::string>>{
               {"tszf", "tszo"}, {"zfts", "tozs"}, {"tzsf", "zsto"}, {"sftz", "ozts"}})
        expect_mixture({"ts", hidden, results, gathers, biased}, random);
}

// What looks like a mixture, but is not.
TEST(ExpertsAsEinsums, StayIfTheyAreNoMixture) {
  const auto mixtures = [](std::string text, std::string_view from, std::string_view to, std::string_view before = "",
                           std::string_view with = "") {
    for (const auto& [old, wanted] : {std::pair(from, to), {before, with}}) {
      const size_t at = text.find(old);
      EXPECT_NE(at, std::string::npos) << old;
      text.replace(at, old.size(), wanted);
    }
    CompileOptions options;
    options.mesh = Mesh::parse("tp=1");
    return operators(*compile(parse_text(text), options).model->graph, "tessera");
  };
  for (const bool gathers : {false, true}) {
    const std::string text = Spelling{"t", "tzf", "tzo", gathers, true}.text();
    EXPECT_EQ(mixtures(text, "\"tzo,tz->to\"", "\"tzo,ta->to\""), Counts{}) << "weights of other choices";
    EXPECT_EQ(mixtures(text, "Relu (gb)", "Tanh (gb)"), Counts{}) << "an activation that Experts lacks";
    EXPECT_EQ(mixtures(text, "(pb, weights)", "(gb, weights)").size(), 0U) << "one product";
  }
  const std::string square = Spelling{"t", "tzf", "tzo", false, false}.text();
  EXPECT_EQ(mixtures(square, "(p, weights)", "(pw, weights)", "  y = Einsum",
                     "  column = Unsqueeze (weights, last)\n  pw = Mul (p, column)\n  y = Einsum"),
            Counts{})
      << "weights twice";
  const std::string gathered = Spelling{"t", "tzf", "tzo", true, false}.text();
  EXPECT_EQ(mixtures(gathered, "c2 = Gather (w2, i)", "j = Neg (i)\n  c2 = Gather (w2, j)"), Counts{})
      << "products by other choices";
}

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
