// ONNX's sequences through the public API, on meshes: a loop that collects rows, an element that the run chooses, and
// pieces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/small_model.h"
#include "tessera/check.h"

namespace tessera::test {
namespace {

constexpr std::string_view kText = R"(<ir_version: 10, opset_import: ["" : 21]>
g (float[batch, 4] x, int64 which) => (float[rows, 4] all, float[batch, 4] one, float[batch, 4] turned) <float[4, 4] w> {
  none = SequenceEmpty ()
  trips = Constant <value = int64 {3}> ()
  filled = Loop <body = body (int64 k, bool on, float[] before) => (bool go, float[] after) {
    times = Cast <to = 1> (k)
    product = MatMul (x, w)
    row = Mul (product, times)
    after = SequenceInsert (before, row)
    go = Identity (on)
  }> (trips, "", none)
  all = ConcatFromSequence <axis = 0> (filled)
  one = SequenceAt (filled, which)
  half = Constant <value = int64 {2}> ()
  pieces = SplitToSequence <axis = 1> (x, half)
  first = Constant <value = int64 {0}> ()
  last = Constant <value = int64 {-1}> ()
  left = SequenceAt (pieces, first)
  right = SequenceAt (pieces, last)
  exchanged = SequenceConstruct (right, left)
  turned = ConcatFromSequence <axis = -1> (exchanged)
})";

std::vector<float> floats(const Tensor& tensor) {
  const auto* elements = reinterpret_cast<const float*>(tensor.data);
  return {elements, elements + tensor.count()};
}

TEST(Sequences, give_the_same_on_meshes) {
  const TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, kText));
  for (const int64_t which : {0, 1, 2, -1}) {
    Tensor position = Tensor::zeros(DType::int64, {});
    *reinterpret_cast<int64_t*>(position.mutable_data()) = which;
    const Tensors inputs{{"x", ramp({5, 4})}, {"which", position}};
    Tensors alone;
    for (const char* mesh : {"tp=1", "tp=2", "dp=2,tp=2"}) {
      SCOPED_TRACE(testing::Message() << which << " on " << mesh);
      const Program program = compile(model, Mesh::parse(mesh), {});
      auto outputs = Session(program).run(inputs);
      if (alone.empty()) alone = outputs;
      const std::vector<float> all = floats(outputs.at("all")), one = floats(outputs.at("one"));
      ASSERT_EQ(all.size(), 60U);
      const size_t begin = 20 * static_cast<size_t>((which + 3) % 3);
      EXPECT_EQ(
          one, std::vector<float>(all.begin() + static_cast<long>(begin), all.begin() + static_cast<long>(begin) + 20));
      EXPECT_EQ(all, floats(alone.at("all")));
      const std::vector<float> x = floats(inputs.at("x")), turned = floats(outputs.at("turned"));
      for (size_t i = 0; i < 20; ++i) EXPECT_EQ(turned[i], x[i / 4 * 4 + (i + 2) % 4]);
    }
  }
}

// In a function, and read in a loop that stays one, where annotations are completed.
TEST(Sequences, have_no_layouts) {
  const TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, R"(<ir_version: 11, opset_import: ["" : 21, "local" : 1]>
    g (float[4, 8] x, int64 n) => (float[m, 8] y, float[4, 8] z) {
      none = SequenceEmpty ()
      s = local.F (none, x)
      three = Constant <value = int64 {3}> ()
      filled = Loop <body = f (int64 i, bool c, float[] before) => (bool c2, float[] after) {
        after = SequenceInsert (before, x)
        c2 = Identity (c)
      }> (three, "", s)
      total = ReduceSum <keepdims = 0> (x)
      zero = Constant <value = float {0}> ()
      positive = Greater (total, zero)
      chosen = If <then_branch = t () => (float[] p) { p = Identity (filled) },
                   else_branch = e () => (float[] q) { q = SequenceConstruct (x, x, x, x, x) }> (positive)
      y = ConcatFromSequence <axis = 0> (chosen)
      z = Loop <body = b (int64 i, bool c, float[4, 8] v) => (bool c2, float[4, 8] v2) {
        two = Constant <value = int64 {2}> ()
        at = Mod (i, two)
        e = SequenceAt (s, at)
        v2 = Add (v, e)
        c2 = Identity (c)
      }> (n, "", x)
    }
    <domain: "local", opset_import: ["" : 21]>
    F (s, v) => (r) { a = SequenceInsert (s, v)  b = Relu (v)  r = SequenceInsert (a, b) })"));
  Plan plan;
  plan.annotations = {{"x=[tp,-]"}};
  const Model annotated = model.annotated(Mesh::parse("tp=2"), plan, "c");
  const ConfiguredModel whole = annotated.completed("c").configured("c");
  Tensor trips = Tensor::zeros(DType::int64, {});
  *reinterpret_cast<int64_t*>(trips.mutable_data()) = 3;
  const Tensors inputs{{"x", ramp({4, 8})}, {"n", trips}};
  const Tensors expected = Session(compile(model, Mesh(), {})).run(inputs);
  const Tensors split = Session(compile(whole.model, Mesh::parse(whole.plan.mesh), whole.plan)).run(inputs);
  for (const char* result : {"y", "z"}) EXPECT_EQ(floats(split.at(result)), floats(expected.at(result))) << result;
}

}  // namespace
}  // namespace tessera::test
