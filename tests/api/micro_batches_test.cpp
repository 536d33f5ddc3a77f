// Models whose batch is cut into parts: the answers are those of the whole batch, in its order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/same_bits.h"
#include "api/small_model.h"
#include "tessera/check.h"
#include "tessera/explain.h"
#include "tessera/inspect.h"

namespace tessera::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Plan parts(int count) {
  Plan plan;
  plan.micro_batches = count;
  return plan;
}

class MicroBatches : public testing::Test {
 protected:
  Model model(std::string_view text) const {
    return Model::load(write_model(folder_, "<ir_version: 10, opset_import: [\"\" : 24]>\n" + std::string(text), 3));
  }

  /// What the model's batch cannot be cut for.
  std::string refusal(std::string_view text, int count = 2, SymbolSizes sizes = {}) const {
    Plan plan = parts(count);
    plan.shapes = std::move(sizes);
    try {
      model(text).in_micro_batches(plan);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::user);
      return error.what();
    }
    return "";
  }

  /// Compares several numbers of parts on several meshes with the whole batch on one rank.
  void expect_whole(const Model& whole, const Tensors& inputs, const std::vector<int>& counts,
                    const std::vector<const char*>& meshes = {"", "dp=2", "tp=2", "dp=3"}) {
    const Tensors expected = Session(compile(whole, Mesh(), {}), one_thread()).run(inputs);
    for (const int count : counts) {
      Plan plan = parts(count);
      const Model cut = whole.in_micro_batches(plan);
      EXPECT_EQ(plan.micro_batches, 0);
      for (const char* mesh : meshes) {
        SCOPED_TRACE(std::to_string(count) + " parts, mesh " + mesh);
        const Program program = compile(cut, Mesh::parse(mesh), plan);
        EXPECT_TRUE(check_program(program).good());
        Session session(program, one_thread());
        expect_same(session.run(inputs), expected);
      }
    }
  }

  TemporaryFolder folder_;
};

TEST_F(MicroBatches, GiveTheAnswerOfTheBatch) {
  const Model pair = model(kPair);
  expect_whole(pair, {{"x", ramp({8, 8})}}, {1, 2, 4, 8});
  expect_whole(pair, {{"x", ramp({6, 8})}}, {3});
}

// Tokens of all samples in one dimension, an input for all parts, and two outputs.
TEST_F(MicroBatches, DivideRowsThatSamplesHaveSeveralOf) {
  expect_whole(model(R"(
g (float[batch, tokens, 4] x, float[1, tokens, 4] positions) => (float[rows, 6] y, float[batch] z) <float[4, 6] w> {
  placed = Add (x, positions)
  flat_shape = Constant <value = int64[2] {-1, 4}> ()
  flat = Reshape (placed, flat_shape)
  y = MatMul (flat, w)
  axes = Constant <value = int64[2] {1, 2}> ()
  z = ReduceMax <keepdims = 0> (placed, axes)
})"),
               {{"x", ramp({4, 3, 4})}, {"positions", ramp({1, 3, 4}, 2)}}, {2, 4});
}

TEST_F(MicroBatches, TakeBranchesAndLoops) {
  expect_whole(model(R"(
g (float[batch, 4] x, bool often) => (float[batch, 4] y) <float[4, 4] w> {
  limit = Constant <value = int64 {3}> ()
  r = Loop (limit, often, x) <body = b (int64 i, bool c, float[n, 4] v) => (bool c2, float[n, 4] v2) {
    v2 = MatMul (v, w)
    c2 = Identity (c)
  }>
  y = If (often) <then_branch = t () => (float[n, 4] a) { a = Relu (r) },
                  else_branch = e () => (float[n, 4] b) { b = Neg (r) }>
})"),
               {{"x", ramp({4, 4})}, {"often", Tensor::of<uint8_t>(DType::boolean, {}, {1})}}, {2}, {"", "dp=2"});
}

TEST_F(MicroBatches, AreOfABatchOfAnySizeThatTheyDivide) {
  Plan plan = parts(2);
  plan.shapes = {{"batch", 8}};
  const Model cut = model(kPair).in_micro_batches(plan);
  EXPECT_THAT(cut.inputs().front().shape, ElementsAre("2*batch_part", "8"));
  EXPECT_EQ(plan.shapes, (SymbolSizes{{"batch_part", 4}}));
  Session session(cut, Mesh::parse("dp=2"), plan);
  for (const int64_t batch : {2, 4, 12}) EXPECT_EQ(session.run({{"x", ramp({batch, 8})}}).at("y").dims[0], batch);
  EXPECT_THROW(session.run({{"x", ramp({5, 8})}}), Error);
}

TEST_F(MicroBatches, AreAsLargeAsABatchThatIsANumber) {
  Plan plan = parts(3);
  const Model one = model("g (float[2, 4] x) => (float[2, 4] y) { y = Relu (x) }");
  const Model cut = one.in_micro_batches(plan);
  EXPECT_THAT(cut.inputs().front().shape, ElementsAre("6", "4"));
  const Tensor x = ramp({6, 4});
  const Tensor y = Session(cut, Mesh(), plan).run({{"x", x}}).at("y");
  for (int64_t i = 0; i < x.count(); ++i) EXPECT_EQ(y.as<float>()[i], std::max(0.0F, x.as<float>()[i]));
}

TEST_F(MicroBatches, LeaveAnnotationsOfParametersAsTheyAre) {
  Plan plan = parts(2);
  plan.presets = "none";
  plan.annotations = {{"up=[-,tp]"}, {"down=[tp,-]"}};
  const Model whole = model(kPair);
  const Tensors inputs = {{"x", ramp({4, 8})}};
  const Tensors expected = Session(compile(whole, Mesh(), {}), one_thread()).run(inputs);
  const Model cut = whole.in_micro_batches(plan);
  const Program program = compile(cut, Mesh::parse("tp=2"), plan);
  EXPECT_EQ(program.explain("up").places.front().layout, "[-, 32{tp}]");
  Session session(program, one_thread());
  expect_same(session.run(inputs), expected);
}

TEST_F(MicroBatches, RefuseWhatIsNotMadeOfSamples) {
  EXPECT_THAT(refusal("g (float[batch, 4] x) => (float[4] y) { axes = Constant <value = int64[1] {0}> ()"
                      " y = ReduceSum <keepdims = 0> (x, axes) }"),
              AllOf(HasSubstr("[micro-batches] the output 'y' is [4]"), HasSubstr("not a multiple of the batch")));
  EXPECT_THAT(refusal("g (float[batch, 4] x) => (float y) { y = ReduceSum <keepdims = 0> (x) }"),
              HasSubstr("the output 'y' is []"));
  EXPECT_THAT(refusal("g (float[batch, 4] x) => (float[batch, batch] y) { t = Transpose (x) y = MatMul (x, t) }"),
              HasSubstr("or others depend on that"));
  EXPECT_THAT(refusal("g (float[batch, 4] x, float[4, batch] m) => (float[batch, batch] y) { y = MatMul (x, m) }"),
              HasSubstr("dimension 1 of the input 'm' depends on the batch 'batch'"));
  EXPECT_THAT(refusal(kPair, 4, {{"batch", 6}}), HasSubstr("a batch of 6 cannot be cut into 4 equal micro-batches"));
  EXPECT_THAT(refusal("g (float x) => (float y) { y = Relu (x) }"), HasSubstr("no input has a batch dimension"));
  EXPECT_THAT(refusal("g (float[batch, 4] x) => (float[batch, 4] y) { r = RandomNormalLike (x) y = Add (x, r) }"),
              HasSubstr("draws random numbers"));
}

// Of samples, not of features.
TEST_F(MicroBatches, SayWhatIsComputedAcrossSamples) {
  const auto note_of = [&](const std::string& nodes) {
    Plan plan = parts(2);
    std::string note = "none";
    model("g (float[batch, 4, 6] x) => (float[batch, 4, 6] y) {\n" + nodes + "}").in_micro_batches(plan, &note);
    return note;
  };
  EXPECT_EQ(note_of("y = Softmax <axis = -1> (x)"), "");
  EXPECT_EQ(note_of("s = Constant <value = int64[2] {-1, 6}> () t = Constant <value = int64[3] {-1, 4, 6}> ()\n"
                    "flat = Reshape (x, s) z = Softmax <axis = 1> (flat) y = Reshape (z, t)"),
            "");
  const char* across[] = {"y = Softmax <axis = 0> (x)",
                          "a = Constant <value = int64[1] {0}> () m = ReduceMean (x, a) y = Sub (x, m)",
                          "s = Constant <value = int64[2] {-1, 6}> () t = Constant <value = int64[3] {-1, 4, 6}> ()\n"
                          "flat = Reshape (x, s) z = Softmax <axis = 0> (flat) y = Reshape (z, t)",
                          "i = Constant <value = int64[1] {0}> () r = Gather (x, i) y = Add (x, r)",
                          "p = Transpose <perm = [1, 2, 0]> (x) h = Hardmax (p) y = Transpose <perm = [2, 0, 1]> (h)"};
  for (const char* nodes : across) EXPECT_THAT(note_of(nodes), HasSubstr("computes from several samples")) << nodes;
}

TEST_F(MicroBatches, RefuseStatesThatChange) {
  Plan plan = parts(2);
  const Model stepping = model(R"(
g (float[batch, 4] x) => (float[batch, 4] y, float[4] next) <float[4] s> {
  y = Add (x, s)
  next = Neg (s)
})")
                             .with_states({"s=next"});
  EXPECT_THROW(stepping.in_micro_batches(plan), Error);
}

}  // namespace
}  // namespace tessera::test
