// Models that arrive split, with collectives in them: they give the answer of the whole model, and those that do not
// fit together are refused before they run.
#include "tessera/join.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "api/small_model.h"
#include "tessera/check.h"
#include "tessera/onnx/import.h"
#include "tessera/onnx/metadata.h"

namespace tessera {
namespace {

using test::TemporaryFolder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kHeader =
    R"(<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1, "tessera.comm" : 1]> )";

// Rows [begin, end) of dimension `dim` of a matrix.
Tensor slice(const Tensor& whole, int dim, int64_t begin, int64_t end) {
  Dims dims = whole.dims;
  dims[dim] = end - begin;
  std::vector<float> elements;
  for (int64_t row = 0; row < whole.dims[0]; ++row)
    for (int64_t column = 0; column < whole.dims[1]; ++column)
      if (int64_t at = dim == 0 ? row : column; at >= begin && at < end)
        elements.push_back(whole.as<float>()[static_cast<size_t>(row * whole.dims[1] + column)]);
  return Tensor::of(DType::float32, dims, elements);
}

Model write(const TemporaryFolder& folder, int rank, const std::string& text,
            const std::map<std::string, Tensor>& states = {}) {
  OnnxModel model = parse_text(std::string(kHeader) + text);
  for (const auto& [name, data] : states) model.graph->find(name)->data = data;
  const std::filesystem::path path = folder / ("rank_" + std::to_string(rank) + ".onnx").c_str();
  export_model(model, path);
  return Model::load(path);
}

// A model on every rank: "RANK" in its text is its number.
std::vector<Model> on_ranks(const TemporaryFolder& folder, int ranks, const std::string& text) {
  std::vector<Model> models;
  for (int rank = 0; rank < ranks; ++rank) {
    std::string own = text;
    for (size_t at; (at = own.find("RANK")) != std::string::npos;) own.replace(at, 4, std::to_string(rank));
    models.push_back(write(folder, rank, own));
  }
  return models;
}

// Megatron's split of test::kPair, by hand: `up` by columns, `down` by rows, and the sum of both.
std::vector<Model> hand_split(const TemporaryFolder& folder, const std::string& all_reduce) {
  std::vector<Model> models;
  for (int rank = 0; rank < 2; ++rank)
    models.push_back(write(folder, rank, R"(
half (float[batch, 8] x) => (float[batch, 8] y) <float[8, 16] up, float[16, 8] down> {
  hidden = MatMul (x, up)
  active = Relu (hidden)
  part = MatMul (active, down)
  [sum] y = )" + all_reduce + "(part)\n}",
                           {{"up", slice(test::ramp({8, 32}), 1, 16 * rank, 16 * rank + 16)},
                            {"down", slice(test::ramp({32, 8}), 0, 16 * rank, 16 * rank + 16)}}));
  return models;
}

constexpr const char* kOurs = R"(tessera.comm.AllReduce <axes = ["tp"], reduction = "sum"> )";
constexpr const char* kRuntimes = "com.microsoft.AllReduce ";
constexpr const char* kTensorRTs =
    R"(DistCollective <collective_operation = "ALL_REDUCE", reduce_op = "SUM", root = -1, nb_rank = 2, group_size = 0> )";

std::vector<float> floats(const Tensor& tensor) {
  const auto elements = tensor.as<float>();
  return {elements.begin(), elements.end()};
}

std::vector<float> run(const Program& program, const Tensors& inputs) {
  return floats(Session(program).run(inputs).at("y"));
}

std::string error_in(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    return error.what();
  }
  return "";
}

TEST(Join, HandSplitModelsGiveTheWholeOnesAnswerInEveryDialect) {
  TemporaryFolder whole_folder;
  const Model whole = Model::load(test::write_model(whole_folder, test::kPair));
  const Tensors inputs = {{"x", test::ramp({3, 8})}};
  const std::vector<float> expected = run(compile(whole, Mesh()), inputs);
  for (const char* all_reduce : {kOurs, kRuntimes, kTensorRTs}) {
    TemporaryFolder folder;
    const Program program = join(hand_split(folder, all_reduce));
    EXPECT_TRUE(check_program(program).good());
    EXPECT_EQ(check_program(program).communications, 2);
    EXPECT_EQ(run(program, inputs), expected) << all_reduce;  // small multiples of 1/64: sums are exact
  }
}

TEST(Join, TheMeshIsOneAxisOfTheNameThatNodesGive) {
  TemporaryFolder folder;
  EXPECT_EQ(join(hand_split(folder, kOurs)).mesh().str(), "tp=2");
  EXPECT_EQ(join(hand_split(folder, kRuntimes)).mesh().str(), "rank=2");
  EXPECT_EQ(join(hand_split(folder, kRuntimes), Mesh::parse("a=1,b=2")).mesh().str(), "a=1,b=2");
  EXPECT_THAT(error_in([&] { join(hand_split(folder, kRuntimes), Mesh::parse("a=3")); }),
              HasSubstr("there are 2 models, and the mesh a=3 has 3 ranks"));
}

TEST(Join, OneModelServesAllRanks) {
  TemporaryFolder folder;
  const Model model = write(folder, 0, R"(
all (float[2, 3] x) => (float[4, 3] y) {
  index = tessera.comm.AxisIndex <axis = "tp"> ()
  shift = Cast <to = 1> (index)
  own = Add (x, shift)
  y = com.microsoft.AllGather <axis = 0, group_size = 2> (own)
})");
  EXPECT_TRUE(has_collectives(model));
  const Tensors inputs = {{"x", Tensor::of<float>(DType::float32, {2, 3}, {1, 2, 3, 4, 5, 6})}};
  EXPECT_THAT(run(join({model}, Mesh::parse("tp=2")), inputs), ElementsAre(1, 2, 3, 4, 5, 6, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(error_in([&] { join({model}, Mesh::parse("tp=3")); }),
              HasSubstr("its group_size is 2, but there are 3 ranks"));
  EXPECT_THAT(error_in([&] { compile(model, Mesh::parse("tp=2")); }), HasSubstr("it is split already"));
}

TEST(Join, BlocksChangePlacesAlongDimensionZero) {
  for (const char* exchange :
       {"com.microsoft.AllToAll <group_size = 2>",
        R"(DistCollective <collective_operation = "all_to_all", reduce_op = "none", root = -1, nb_rank = 2>)"}) {
    TemporaryFolder folder;
    const auto models =
        on_ranks(folder, 2, std::string("exchange (float[4, 1] x) => (float[4, 1] y) { y = ") + exchange + " (x) }");
    JoinOptions options;
    options.own = {"x", "y"};
    const Program program = join(models, {}, options);
    const Tensors outputs = Session(program).run({{"x@0", Tensor::of<float>(DType::float32, {4, 1}, {1, 2, 3, 4})},
                                                  {"x@1", Tensor::of<float>(DType::float32, {4, 1}, {5, 6, 7, 8})}});
    EXPECT_THAT(floats(outputs.at("y@0")), ElementsAre(1, 2, 5, 6)) << exchange;
    EXPECT_THAT(floats(outputs.at("y@1")), ElementsAre(3, 4, 7, 8)) << exchange;
  }
}

TEST(Join, OutputsComeFromTheLowestRankThatGivesThem) {
  TemporaryFolder folder;
  const std::vector<Model> models = {
      write(folder, 0, "first (float[2] x) => (float[2] z) { h = Add (x, x) z = com.microsoft.AllReduce (h) }"),
      write(folder, 1,
            "second (float[2] x) => (float[2] z, float[2] y) { h = Neg (x) z = com.microsoft.AllReduce (h) "
            "y = Mul (z, z) }"),
      write(folder, 2, "third (float[2] x) => (float[2] y) { s = com.microsoft.AllReduce (x) y = Mul (s, s) }")};
  const Program program = join(models);
  EXPECT_TRUE(check_program(program).good());
  const Tensors outputs = Session(program).run({{"x", Tensor::of<float>(DType::float32, {2}, {1, 2})}});
  EXPECT_THAT(floats(outputs.at("z")), ElementsAre(2, 4));
  EXPECT_THAT(floats(outputs.at("y")), ElementsAre(4, 16));
}

// check's finding on two ranks' models; RANK in the text stands for the rank's number. "" if the models are good.
std::string flaw_of(const std::string& text, const std::map<std::string, Tensor>& first = {},
                    const std::map<std::string, Tensor>& second = {}, std::vector<std::string> own = {}) {
  TemporaryFolder folder;
  std::vector<Model> models;
  for (int rank = 0; rank < 2; ++rank) {
    std::string mine = text;
    for (size_t at; (at = mine.find("RANK")) != std::string::npos;) mine.replace(at, 4, std::to_string(rank));
    models.push_back(write(folder, rank, mine, rank == 0 ? first : second));
  }
  JoinOptions options;
  options.own = std::move(own);
  const CheckReport report = check_program(join(models, Mesh::parse("tp=2"), options));
  return report.good() ? "" : report.findings.front().rule + ": " + report.findings.front().message;
}

constexpr const char* kSplitMatMul = R"(
half (float[b, 8] x) => (float[b, 4] y) <float[8, 4] w> {
  p = MatMul (x, w)
)";

TEST(JoinedOutputs, AreTheSameOnAllRanksThatGiveThem) {
  const std::map<std::string, Tensor> first = {{"w", test::ramp({8, 4})}},
                                      second = {{"w", slice(test::ramp({16, 4}), 0, 8, 16)}};
  auto ends_in = [&](const std::string& end) { return flaw_of(kSplitMatMul + end + "}", first, second); };
  EXPECT_EQ(ends_in("y = com.microsoft.AllReduce (p)\n"), "");
  EXPECT_THAT(
      ends_in("y = Identity (p)\n"),
      AllOf(HasSubstr("output: not proved: the output 'y' is not the same on ranks 0 and 1: the data of 'w' differ, "
                      "which MatMul producing 'y' uses"),
            HasSubstr("give `own` y if each rank has its own")));
  EXPECT_THAT(ends_in("r = com.microsoft.AllReduce (p)\n y = Add (r, p)\n"), HasSubstr("the data of 'w' differ"));
  EXPECT_EQ(flaw_of(std::string(kSplitMatMul) + "y = Identity (p)\n}", first, first), "") << "equal data are one";
  EXPECT_EQ(flaw_of(std::string(kSplitMatMul) + "y = Identity (p)\n}", first, second, {"y"}), "");
}

TEST(JoinedOutputs, ThatAreOfOneNameAndAnotherComputationAreNotProved) {
  TemporaryFolder folder;
  const std::vector<Model> models = {write(folder, 0, "a (float[2] x) => (float[2] y) { y = Neg (x) }"),
                                     write(folder, 1, "b (float[2] x) => (float[2] y) { y = Abs (x) }")};
  EXPECT_THAT(check_program(join(models)).findings.front().message,
              HasSubstr("Neg producing 'y' makes it on rank 0, and Abs producing 'y' on rank 1"));
  EXPECT_THAT(error_in([&] { Session{join(models)}; }), HasSubstr("is not the same on ranks 0 and 1"));
}

TEST(JoinedOutputs, MayBeReachedByOtherCollectives) {
  const std::string header = "g (float[4, 6] x) => (float[4, 6] y) <float[1] own> {\n h = Mul (x, own)\n";
  const std::map<std::string, Tensor> first = {{"own", Tensor::of<float>(DType::float32, {1}, {2})}},
                                      second = {{"own", Tensor::of<float>(DType::float32, {1}, {3})}};
  auto flaw = [&](const std::string& body) { return flaw_of(header + body + "}", first, second); };
  const std::string axes = R"(<axes = ["tp"], root = 1> )", dim = R"(<axes = ["tp"], dim = 0> )";
  EXPECT_EQ(flaw("s = tessera.comm.ReduceScatter " + dim + "(h)\n y = tessera.comm.AllGather " + dim + "(s)\n"), "");
  EXPECT_EQ(flaw("y = tessera.comm.Broadcast " + axes + "(h)\n"), "");
  EXPECT_THAT(flaw("s = tessera.comm.ReduceScatter " + dim + "(h)\n y = Concat <axis = 0> (s, s)\n"),
              HasSubstr("output: not proved"));
}

TEST(JoinedOutputs, AreNotZerosOnSomeRanks) {
  const std::string header = "g (float[4] x) => (float[4] y) {\n";
  for (const char* collective : {R"(y = tessera.comm.Reduce <axes = ["tp"], root = 1> (x))",
                                 R"(y = tessera.comm.Permute <axes = ["tp"], targets = [1, -1]> (x))"})
    EXPECT_THAT(flaw_of(header + collective + "\n}"), HasSubstr("'y' is not the same on ranks 0 and 1")) << collective;
  EXPECT_THAT(flaw_of(R"(
g (float[4] x) => (float[4] y) {
  part = tessera.comm.Reduce <axes = ["tp"], root = 1> (x)
  y = Identity (part)
})"),
              HasSubstr("'y' is not the same on ranks 0 and 1"));
}

TEST(JoinedOutputs, OfSlicesAreWhatSlicesTake) {
  auto flaw = [](const std::string& first, const std::string& second) {
    TemporaryFolder folder;
    std::vector<Model> models;
    for (const std::string& body : {first, second})
      models.push_back(write(folder, static_cast<int>(models.size()),
                             R"(g (float[n] x, float[8] z) => (float[m] y)
  <int64[1] c0 = {0}, int64[1] c3 = {3}, int64[1] c5 = {5}, int64[1] c8 = {8}, int64[1] low = {-5}, int64[1] far = {100}> {
)" + body + "\n}"));
    const CheckReport report = check_program(join(models, Mesh::parse("tp=2")));
    return report.good() ? "" : report.findings.front().message;
  };
  EXPECT_EQ(flaw("a = Slice (z, c0, c3) b = Slice (z, c3, c8) y = Concat <axis = 0> (a, b)", "y = Identity (z)"), "");
  EXPECT_EQ(flaw("y = Slice (z, low, far)", "y = Slice (z, c3, c8)"), "") << "from the end, and cut off";
  EXPECT_NE(flaw("a = Slice (z, c5, c3) b = Slice (z, c3, c8) c = Concat <axis = 0> (a, b) y = Slice (c, c0, c3)",
                 "y = Slice (z, c5, c8)"),
            "")
      << "what ends before it begins is empty";
  EXPECT_NE(
      flaw("a = Slice (x, c0, far) b = Concat <axis = 0> (a, z) y = Slice (b, far, low)", "y = Slice (z, c0, c3)"), "")
      << "how much is cut off depends on the size";
}

TEST(JoinedOutputs, AreOfOneType) {
  TemporaryFolder folder;
  const std::vector<Model> models = {
      write(folder, 0, "a (float[4] x) => (float[4] y) { y = Identity (x) }"),
      write(folder, 1,
            "b (float[4] x) => (float[2] y) <int64[1] c0 = {0}, int64[1] c2 = {2}> { y = Slice (x, c0, c2) }")};
  EXPECT_FALSE(check_program(join(models)).good());
}

TEST(JoinedOutputs, AreBroughtTogetherByMessages) {
  const std::string exchange = R"(
g (float[2] x) => (float[4] y) <float[1] own, int64 peer, int64[1] shape = {2}> {
  h = Mul (x, own)
   = tessera.comm.Send <axes = ["tp"], value = "h"> (h, peer)
  r = tessera.comm.Recv <axes = ["tp"], value = "h", dtype = 1> (peer, shape)
)";
  auto flaw = [&](const std::string& at_first, const std::string& at_second) {
    TemporaryFolder folder;
    std::vector<Model> models;
    for (int rank = 0; rank < 2; ++rank)
      models.push_back(write(folder, rank, exchange + (rank == 0 ? at_first : at_second) + "}",
                             {{"own", Tensor::of<float>(DType::float32, {1}, {static_cast<float>(2 + rank)})},
                              {"peer", Tensor::of<int64_t>(DType::int64, {}, {1 - rank})}}));
    const CheckReport report = check_program(join(models, Mesh::parse("tp=2")));
    return report.good() ? "" : report.findings.front().message;
  };
  const std::string mine_first = "y = Concat <axis = 0> (h, r)\n", other_first = "y = Concat <axis = 0> (r, h)\n";
  EXPECT_EQ(flaw(mine_first, other_first), "");
  EXPECT_THAT(flaw(mine_first, mine_first), HasSubstr("not the same on ranks 0 and 1"));
}

// Rings and trees of messages, over blocks of unknown sizes.
TEST(JoinedOutputs, AreProvedOfLoweredCollectives) {
  TemporaryFolder folder;
  const Model model = Model::load(std::string(TESSERA_TEST_DATA) + "/models/mlp/model.onnx");
  WriteOptions options;
  options.form = Form::parallel_for;
  options.lower = Lower::primitives;
  for (const char* mesh : {"tp=2", "tp=3", "dp=2,tp=2", "dp=3,tp=3"}) {
    compile(model, Mesh::parse(mesh), {}).write(folder / "out", options);
    const CheckReport report = check_program(join({Model::load(folder / "out/model.onnx")}, Mesh::parse(mesh)));
    EXPECT_TRUE(report.good()) << mesh << ": " << report.findings.front().message;
  }
}

TEST(JoinedOutputs, OwnPortsMustExist) {
  EXPECT_THAT(error_in([] { flaw_of("g (float[2] x) => (float[2] y) { y = Neg (x) }", {}, {}, {"yy"}); }),
              AllOf(HasSubstr("no model has an input or output 'yy'"), HasSubstr("did you mean 'y'")));
}

TEST(Join, GroupsOfRanksAreAxesOfTheMesh) {
  TemporaryFolder folder;
  auto models = [&](const std::array<const char*, 4>& groups) {
    std::vector<Model> all;
    for (int rank = 0; rank < 4; ++rank)
      all.push_back(write(folder, rank,
                          std::string(R"(grouped (float[2] x) => (float[2] y) {
  y = DistCollective <collective_operation = "all_reduce", reduce_op = "max", root = -1, nb_rank = 2, group_size = 2,
                      groups = [)") +
                              groups[rank] + "]> (x)\n}"));
    return all;
  };
  JoinOptions options;
  options.own = {"x", "y"};
  const Program program = join(models({"0, 2", "1, 3", "0, 2", "1, 3"}), Mesh::parse("a=2,b=2"), options);
  Tensors inputs;
  for (int rank = 0; rank < 4; ++rank)
    inputs["x@" + std::to_string(rank)] =
        Tensor::of<float>(DType::float32, {2}, {static_cast<float>(rank), static_cast<float>(-rank)});
  const Tensors outputs = Session(program).run(inputs);
  EXPECT_THAT(floats(outputs.at("y@0")), ElementsAre(2, 0));
  EXPECT_THAT(floats(outputs.at("y@1")), ElementsAre(3, -1));
  EXPECT_THAT(floats(outputs.at("y@2")), ElementsAre(2, 0));
  EXPECT_THAT(error_in([&] {
                join(models({"0, 3", "1, 2", "1, 2", "0, 3"}), Mesh::parse("a=2,b=2"));
              }),
              HasSubstr("its group 0, 3 is not the ranks that differ along some axes of the mesh a=2,b=2"));
  EXPECT_THAT(error_in([&] {
                join(models({"0, 1", "2, 3", "2, 3", "2, 3"}), Mesh::parse("a=2,b=2"));
              }),
              HasSubstr("rank_1.onnx, of rank 1: "));
}

TEST(Join, AReduceScatterLeavesEachItsBlock) {
  TemporaryFolder folder;
  const auto models = on_ranks(folder, 2, R"(scatter (float[4] x) => (float[2] yRANK) {
  yRANK = DistCollective <collective_operation = "reduce_scatter", reduce_op = "sum", root = -1, nb_rank = 2> (x)
})");
  Tensors outputs = Session(join(models)).run({{"x", Tensor::of<float>(DType::float32, {4}, {1, 2, 3, 4})}});
  EXPECT_THAT(floats(outputs.at("y0")), ElementsAre(2, 4));
  EXPECT_THAT(floats(outputs.at("y1")), ElementsAre(6, 8));
}

TEST(Join, ACollectiveOfSeveralTensorsIsOneForEach) {
  TemporaryFolder folder;
  const Model model = write(
      folder, 0, "two (float[2] x) => (float[2] y, float[2] z) { n = Neg (x) y, z = com.microsoft.AllReduce (x, n) }");
  const Program program = join({model}, Mesh::parse("tp=2"));
  EXPECT_EQ(check_program(program).communications, 4);
  const Tensors outputs = Session(program).run({{"x", Tensor::of<float>(DType::float32, {2}, {1, 2})}});
  EXPECT_THAT(floats(outputs.at("y")), ElementsAre(2, 4));
  EXPECT_THAT(floats(outputs.at("z")), ElementsAre(-2, -4));
}

TEST(Join, OlderModelsAreUpgradedAndFolded) {
  TemporaryFolder folder;
  OnnxModel model = parse_text(R"(<ir_version: 6, opset_import: ["" : 11, "com.microsoft" : 1]>
older (float[1, 4] x) => (float[a, b] y) {
  flat = Squeeze <axes = [0]> (x)
  sum = com.microsoft.AllReduce (flat)
  rows = Constant <value = int64[2] {2, 2}> ()
  y = Reshape (sum, rows)
})");
  export_model(model, folder / "model.onnx");
  const Program program = join({Model::load(folder / "model.onnx")}, Mesh::parse("tp=2"));
  EXPECT_THAT(run(program, {{"x", Tensor::of<float>(DType::float32, {1, 4}, {1, 2, 3, 4})}}), ElementsAre(2, 4, 6, 8));
}

// Findings of check, and errors of a session, for ranks that do not fit together.
void expect_refused(const Program& program, const std::string& rule, const std::vector<std::string>& said) {
  const CheckReport report = check_program(program);
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(report.findings[0].rule, rule);
  const std::string thrown = error_in([&] { Session session(program); });
  EXPECT_THAT(thrown, HasSubstr("fix the ranks' models"));
  for (const std::string& part : said) EXPECT_THAT(thrown, HasSubstr(part));
}

TEST(Join, ARankWithoutItsAllReduceIsRefused) {
  TemporaryFolder folder;
  std::vector<Model> models = hand_split(folder, kRuntimes);
  models[1] = write(folder, 1, R"(
half (float[batch, 8] x) => (float[batch, 8] y) <float[8, 16] up, float[16, 8] down> {
  hidden = MatMul (x, up)
  active = Relu (hidden)
  y = MatMul (active, down)
})");
  expect_refused(join(models), "cycle",
                 {"rank 0 waits for rank 1 at tessera.comm.AllReduce 'sum'", "rank 1 ends without"});
}

TEST(Join, OtherShapesAreRefused) {
  TemporaryFolder folder;
  const std::vector<Model> models = {
      write(folder, 0, "a (float[2, 3] x) => (float[2, 3] y) { [one] y = com.microsoft.AllReduce (x) }"),
      write(
          folder, 1,
          "b (float[2, 3] x) => (float[3, 2] z) { t = Transpose <perm = [1, 0]> (x) [two] z = com.microsoft.AllReduce "
          "(t) }")};
  expect_refused(join(models), "shape", {"ranks 0 and 1", "AllReduce 'one'", "AllReduce 'two'", "[2, 3] and [3, 2]"});
}

TEST(Join, OtherOrdersAreRefused) {
  TemporaryFolder folder;
  const std::string kinds = "float[2, 3] x) => (float[4, 3] y, float[2, 3] z) { ";
  const std::string gather = "[gather] y = com.microsoft.AllGather <axis = 0, group_size = 2> (x) ";
  const std::string sum = "[sum] z = com.microsoft.AllReduce (x) ";
  expect_refused(join({write(folder, 0, "a (" + kinds + gather + sum + "}"),
                       write(folder, 1, "b (" + kinds + sum + gather + "}")}),
                 "order", {"ranks 0 and 1", "AllGather 'gather'", "AllReduce 'sum'", "different kinds"});
  // With one kind and type, only the names of their results distinguish them.
  const std::string alike = "float[2] x) => (float[2] y, float[2] z) { n = Neg (x) ";
  const std::string first = "[first] y = com.microsoft.AllReduce (x) ",
                    second = "[second] z = com.microsoft.AllReduce (n) ";
  expect_refused(join({write(folder, 0, "a (" + alike + first + second + "}"),
                       write(folder, 1, "b (" + alike + second + first + "}")}),
                 "order", {"AllReduce 'first'", "AllReduce 'second'", "different values"});
}

TEST(Join, WhatAFileDeclaresOfAResultMustBeSo) {
  const std::string gather = "= com.microsoft.AllGather <axis = 0, group_size = 2> (x) y = Relu (all) }";
  auto error = [&](const std::string& results) {
    TemporaryFolder folder;
    return error_in(
        [&] { join(on_ranks(folder, 2, "a (float[4, n] x) => (" + results + ") { [gather] all " + gather)); });
  };
  EXPECT_EQ(error("float[8, n] y"), "");
  EXPECT_EQ(error("float[rows, 3] y, float[8, columns] all"), "") << "symbols may be any number";
  EXPECT_THAT(error("float[4, 4] all, float[8, n] y"),
              AllOf(HasSubstr("rank_0.onnx, of rank 0: "), HasSubstr("AllGather 'gather': 'all' is float32[8, n]"),
                    HasSubstr("the file declares float32[4, 4]")));
  EXPECT_THAT(error("float[8] all, float[8, n] y"), HasSubstr("the file declares float32[8];"));
  EXPECT_THAT(error("float[8, n] all, int32[8, n] y"), HasSubstr("'y' is float32[8, n], but the file declares int32"));
}

TEST(Join, WhatEnginesSchemasDoNotHaveIsRefused) {
  auto error = [&](const std::string& type, const std::string& op) {
    TemporaryFolder folder;
    const std::string port = type + "[4] ";
    return error_in(
        [&] { join(on_ranks(folder, 2, "a (" + port + "x) => (" + port + "y) { [one] y = " + op + " (x) }")); });
  };
  EXPECT_THAT(error("int32", "com.microsoft.AllReduce"),
              AllOf(HasSubstr("rank_0.onnx, of rank 0: "), HasSubstr("AllReduce 'one': its operand is int32"),
                    HasSubstr("takes float16, float32, float64")));
  EXPECT_THAT(error("int32", "com.microsoft.AllGather <axis = 0, group_size = 2>"), HasSubstr("its operand is int32"));
  EXPECT_THAT(error("float", "com.microsoft.AllReduce <foo = 3>"),
              HasSubstr("ONNX Runtime's AllReduce has no attribute 'foo'; it has none"));
  EXPECT_THAT(error("float", "com.microsoft.AllGather <axis = 0, group_size = \"2\">"),
              HasSubstr("its attribute group_size must be an integer"));
  EXPECT_THAT(error("float", "com.microsoft.AllGather <axis = 0>"),
              HasSubstr("its group_size is missing, so it is 1, but there are 2 ranks; give it group_size = 2"));
  EXPECT_THAT(error("float", R"(DistCollective <collective_operation = "all_reduce", reduce_op = "sum", ranks = 2>)"),
              HasSubstr("TensorRT's DistCollective has no attribute 'ranks'"));
  EXPECT_THAT(error("float", R"(DistCollective <reduce_op = "sum", nb_rank = 2>)"),
              HasSubstr("its attribute collective_operation is missing"));
}

// A program of test::kPair in a folder.
std::filesystem::path written(const TemporaryFolder& folder, const std::string& mesh, const WriteOptions& options) {
  const Model model = Model::load(test::write_model(folder, test::kPair));
  compile(model, Mesh::parse(mesh)).write(folder / "out", options);
  return folder / "out";
}

TEST(Join, FilesOfWrittenProgramsRunWhereTheirTensorsAreWhole) {
  const Tensors inputs = {{"x", test::ramp({3, 8})}};
  TemporaryFolder whole_folder;
  const std::vector<float> expected =
      run(compile(Model::load(test::write_model(whole_folder, test::kPair)), Mesh()), inputs);
  for (const RankIdentity rank_id : {RankIdentity::op, RankIdentity::input}) {
    for (const char* mesh : {"tp=2", "tp=5"}) {
      TemporaryFolder folder;
      const auto out = written(folder, mesh, {.rank_id = rank_id, .form = Form::spmd});
      const Program program = join({Model::load(out / "model.onnx")}, Mesh::parse(mesh));
      EXPECT_TRUE(check_program(program).good());
      EXPECT_EQ(run(program, inputs), expected) << mesh;
    }
    TemporaryFolder folder;
    const auto out = written(folder, "dp=2,tp=2", {.rank_id = rank_id, .form = Form::parallel_for});
    const Model model = Model::load(out / "model.onnx");
    const Program program = join({model});
    EXPECT_EQ(program.mesh().str(), "dp=2,tp=2") << "the node says it";
    EXPECT_TRUE(check_program(program).good());
    EXPECT_EQ(run(program, inputs), expected);
    EXPECT_THAT(error_in([&] { join({model}, Mesh::parse("tp=4")); }), HasSubstr("another mesh than tp=4"));
  }
  TemporaryFolder folder;
  const auto out = written(folder, "tp=2", {.lower = Lower::primitives, .rank_id = RankIdentity::constant});
  EXPECT_EQ(run(join({Model::load(out / "rank_0.onnx"), Model::load(out / "rank_1.onnx")}), inputs), expected);
}

TEST(Join, SharesWithoutTheirManifestAreRefused) {
  TemporaryFolder of_rows, of_all, of_five;
  const auto rows = written(of_rows, "dp=2", {.form = Form::spmd});
  EXPECT_THAT(error_in([&] { join({Model::load(rows / "model.onnx")}, Mesh::parse("dp=2")); }),
              AllOf(HasSubstr("'model.onnx' belongs to a written program, and its 'x' is a shard, [batch{dp}, -]"),
                    HasSubstr("name the program's folder")));
  const auto all = written(of_all, "tp=2", {});
  EXPECT_THAT(
      error_in([&] { join({Model::load(all / "rank_0.onnx")}, Mesh::parse("tp=2")); }),
      AllOf(HasSubstr("'rank_0.onnx'"), HasSubstr("'up' is a shard"), HasSubstr("which differs between ranks")));
  const auto five = written(of_five, "tp=5", {});  // two classes: of 7 and of 6 columns
  EXPECT_THAT(error_in([&] {
                join({Model::load(five / "rank_0.onnx"), Model::load(five / "rank_2.onnx")});
              }),
              HasSubstr("and not that of rank 0 of the mesh tp=2"));
}

// A file of kPair in which a value states that it is a share.
Model pair_that_says(const TemporaryFolder& folder, const char* value, const char* whole, const char* sharding) {
  const std::filesystem::path path = test::write_model(folder, test::kPair);
  OnnxModel model = import_model(path);
  set_metadata(*model.graph->find(value), "tessera.global", whole);
  set_metadata(*model.graph->find(value), "tessera.sharding", sharding);
  export_model(model, path);
  return Model::load(path);
}

TEST(Join, SharesAreKnownByWhatTheirShardingsMean) {
  TemporaryFolder folder;
  const Mesh mesh = Mesh::parse("tp=2");
  for (const char* sharding : {"[tp, -]", "[{tp}, -]", "[-, -] partial(sum:tp)", "[-, -]at(tp=1)"}) {
    const Model model = pair_that_says(folder, "x", "float32[batch, 8]", sharding);
    EXPECT_TRUE(has_collectives(model)) << sharding;
    EXPECT_THAT(error_in([&] { join({model, model}, mesh); }), HasSubstr("its 'x' is a shard")) << sharding;
  }
  for (const char* sharding : {"[-, -]", "[-, 2*4]", "[{}, 2{}*4]"}) {
    const Model model = pair_that_says(folder, "x", "float32[batch, 8]", sharding);
    EXPECT_FALSE(has_collectives(model)) << sharding;
    EXPECT_EQ(error_in([&] { join({model, model}, mesh); }), "") << sharding;
  }
  const Model state = pair_that_says(folder, "up", "float32[min(16, 20), 32]", "[{tp}, -]");
  EXPECT_EQ(error_in([&] { join({state, state}, mesh); }), "") << "commas within parentheses part no extents";
}

TEST(Join, InputsOfOneNameAndTwoTypesAreRefused) {
  TemporaryFolder folder;
  const std::vector<Model> models = {
      write(folder, 0, "a (float[2] x) => (float[2] y) { y = com.microsoft.AllReduce (x) }"),
      write(folder, 1, "b (float[1, 2] x) => (float[2] y) { f = Squeeze (x) y = com.microsoft.AllReduce (f) }")};
  EXPECT_THAT(error_in([&] { join(models); }),
              HasSubstr("the input 'x' is float32[2] on rank 0 and float32[1, 2] on rank 1; give each its own"));
}

}  // namespace
}  // namespace tessera
