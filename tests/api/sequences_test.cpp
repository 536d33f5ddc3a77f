// ONNX's sequences through the public API, on meshes: a loop that collects rows, an element that the run chooses, and
// pieces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/in_parts.h"
#include "api/small_model.h"
#include "tessera/api/impl.h"
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

using in_parts::message_of;

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

// A loop over the rows of an input fills one; another has a piece for each two columns.
TEST(Sequences, are_as_long_as_the_inputs_of_a_run_say) {
  const TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, R"(<ir_version: 10, opset_import: ["" : 21]>
    g (float[batch, width] x) => (float[rows, k] y, float[] total, int64 pairs) {
      none = SequenceEmpty ()
      shape = Shape (x)
      zero = Constant <value = int64 {0}> ()
      trips = Gather (shape, zero)
      filled = Loop <body = body (int64 k, bool on, float[] before) => (bool go, float[m] after) {
        row = Gather (x, k)
        times = Cast <to = 1> (k)
        more = Add (row, times)
        after = SequenceInsert (before, more, zero)
        go = Identity (on)
      }> (trips, "", none)
      y = ConcatFromSequence <axis = 0, new_axis = 1> (filled)
      two = Constant <value = int64 {2}> ()
      pieces = SplitToSequence <axis = 1> (x, two)
      pairs = SequenceLength (pieces)
      last = Constant <value = int64 {-1}> ()
      piece = SequenceAt (pieces, last)
      total = ReduceSum <keepdims = 0> (piece)
    })"));
  EXPECT_THAT(model.impl().size_symbols(), testing::ElementsAre("batch"));
  EXPECT_FALSE(model.runs_in_parts());
  EXPECT_THAT(message_of([&] { compile(model, Mesh()); }),
              testing::AllOf(testing::HasSubstr("Loop"), testing::HasSubstr("iterations is batch"),
                             testing::HasSubstr("`with_sizes` batch=")));
  const Model four = model.with_sizes({{"batch", 4}});
  EXPECT_THAT(four.impl().size_symbols(), testing::ElementsAre("width"));
  EXPECT_THAT(four.with_sizes({{"width", 4}}).impl().size_symbols(), testing::IsEmpty());
  EXPECT_THAT(model.for_program({{"width", 4}}).symbols(), testing::IsEmpty());
  for (const char* mesh : {"tp=1", "tp=2", "dp=2,tp=2"}) {
    Plan plan;
    plan.annotations = {{"x=[-,tp]"}};
    plan.shapes = {{"batch", 3}};
    Session session(model, Mesh::parse(mesh), plan);
    for (const auto& [rows, columns] : {std::pair{3, 4}, {5, 4}, {3, 4}, {1, 7}, {2, 1}, {4, 2}, {70, 3}, {2, 140}}) {
      SCOPED_TRACE(testing::Message() << rows << " by " << columns << " on " << mesh);
      const Tensor x = ramp({rows, columns});
      EXPECT_FALSE(model.runs_in_parts({}, {{"x", x}}));
      const Tensors outputs = session.run({{"x", x}});
      ASSERT_EQ(outputs.at("y").dims, (Dims{rows, columns}));
      const std::vector<float> given = floats(x), y = floats(outputs.at("y"));
      float total = 0;
      for (int r = 0; r < rows; ++r) {
        for (int c = 0; c < columns; ++c)
          EXPECT_EQ(y[static_cast<size_t>(r * columns + c)],
                    given[static_cast<size_t>((rows - 1 - r) * columns + c)] + static_cast<float>(rows - 1 - r));
        for (int c = (columns - 1) / 2 * 2; c < columns; ++c) total += given[static_cast<size_t>(r * columns + c)];
      }
      EXPECT_EQ(floats(outputs.at("total")), std::vector{total});
      EXPECT_EQ(outputs.at("pairs").to_int64().front(), (columns + 1) / 2);
      EXPECT_EQ(session.programs().size(), 1U);
    }
  }
}

// The input's extent is twice the number of iterations.
TEST(Sequences, are_as_long_as_an_expression_says) {
  const TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, R"(<ir_version: 10, opset_import: ["" : 21]>
    g (float["2*pairs", 4] x) => (float[n, 4] y) {
      two = Constant <value = int64 {2}> ()
      pieces = SplitToSequence <axis = 0> (x, two)
      y = ConcatFromSequence <axis = 0> (pieces)
    })"));
  EXPECT_THAT(model.impl().size_symbols(), testing::ElementsAre("pairs"));
  Session session(model, Mesh::parse("tp=2"));
  for (const int rows : {6, 2, 8}) {
    const Tensor x = ramp({rows, 4});
    EXPECT_EQ(floats(session.run({{"x", x}}).at("y")), floats(x)) << rows;
  }
  EXPECT_THAT(message_of([&] {
                session.run({{"x", ramp({5, 4})}});
              }),
              testing::HasSubstr("has extent 5, but the model needs 2*pairs, which no whole pairs"));
}

// The number of iterations is an input, or is computed from data, and then known in a part of the model behind that.
TEST(Sequences, are_as_long_as_a_value_says) {
  const TemporaryFolder folder;
  const std::string loop = R"(
      none = SequenceEmpty ()
      filled = Loop <body = body (int64 k, bool on, float[] before) => (bool go, float[m] after) {
        times = Cast <to = 1> (k)
        row = Add (x, times)
        after = SequenceInsert (before, row)
        go = Identity (on)
      }> (trips, "", none)
      y = ConcatFromSequence <axis = 0> (filled)
    })";
  const std::string head = R"(<ir_version: 10, opset_import: ["" : 21]> )";
  const Model given = Model::load(write_model(folder, head + "g (float[n] x, int64 trips) => (float[m] y) {" + loop));
  EXPECT_THAT(given.impl().value_inputs(), testing::ElementsAre("trips"));
  const TemporaryFolder other;
  const Model computed = Model::load(write_model(
      other, head +
                 "g (float[n] x) => (float[m] y) { most = ReduceMax <keepdims = 0> (x) trips = Cast <to = 7> (most)" +
                 loop));
  EXPECT_TRUE(computed.runs_in_parts());
  for (const char* mesh : {"tp=1", "tp=2"}) {
    Session by_input(given, Mesh::parse(mesh), {.presets = "none"});
    Session by_data(computed, Mesh::parse(mesh), {.presets = "none"});
    for (const int64_t trips : {3, 1, 4}) {
      const Tensor x = Tensor::of<float>(DType::float32, {2}, {-1, static_cast<float>(trips)});
      std::vector<float> expected;
      for (int64_t k = 0; k < trips; ++k)
        for (const float element : floats(x)) expected.push_back(element + static_cast<float>(k));
      EXPECT_EQ(floats(by_data.run({{"x", x}}).at("y")), expected);
      EXPECT_EQ(floats(by_input.run({{"x", x}, {"trips", Tensor::of<int64_t>(DType::int64, {}, {trips})}}).at("y")),
                expected);
    }
  }
}

// What reads a sequence in a later part gets its tensors, and puts it together again: of tensors of both parts, at
// positions that only a run knows, and in a branch.
TEST(Sequences, are_put_together_in_each_part) {
  const TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, R"(<ir_version: 10, opset_import: ["" : 21]>
    g (float[n] x, int64 which) => (float[m] y, float[k] z, float[2, l] flat, float[p] b) {
      double = Add (x, x)
      square = Mul (x, x)
      two = SequenceConstruct (double, square)
      zero = Constant <value = int64 {0}> ()
      three = SequenceInsert (two, x, which)
      first = SequenceAt (three, zero)
      found = NonZero (x)
      row = Squeeze (found)
      some = Gather (double, row)
      four = SequenceInsert (three, some)
      y = ConcatFromSequence <axis = 0> (four)
      count = Cast <to = 7> (first)
      most = ReduceMax <keepdims = 1> (count)
      best, at = TopK (square, most)
      left = SequenceErase (three, zero)
      all = SequenceInsert (left, best)
      z = ConcatFromSequence <axis = 0> (all)
      length = SequenceLength (two)
      places = Constant <value = int64[1] {0}> ()
      lines = Unsqueeze (length, places)
      rest = Constant <value = int64[1] {-1}> ()
      shape = Concat <axis = 0> (lines, rest)
      joined = ConcatFromSequence <axis = 0> (two)
      flat = Reshape (joined, shape)
      total = ReduceSum <keepdims = 0> (best)
      none = Constant <value = float {0}> ()
      positive = Greater (total, none)
      b = If <then_branch = t () => (float[q] p) { p = ConcatFromSequence <axis = 0> (left) },
              else_branch = e () => (float[q] o) { o = SequenceAt (left, zero) }> (positive)
    })"));
  EXPECT_TRUE(model.runs_in_parts());
  for (const char* mesh : {"tp=1", "tp=2"}) {
    Session session(model, Mesh::parse(mesh), {.presets = "none"});
    for (const int64_t which : {0, 2, 1}) {
      SCOPED_TRACE(testing::Message() << which << " on " << mesh);
      const std::vector<float> x{1, 0, 1.5f}, twice{2, 0, 3}, square{1, 0, 2.25f};
      std::vector<std::vector<float>> three{twice, square};
      three.insert(three.begin() + which, x);
      const auto joined = [](const std::vector<std::vector<float>>& lists) {
        std::vector<float> all;
        for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
        return all;
      };
      const Tensors outputs = session.run({{"x", Tensor::of<float>(DType::float32, {3}, x)},
                                           {"which", Tensor::of<int64_t>(DType::int64, {}, {which})}});
      EXPECT_EQ(floats(outputs.at("y")), joined({three[0], three[1], three[2], {2, 3}}));
      std::vector<float> best{2.25f, 1, 0};
      if (which == 0) best.resize(1);  // x is the first
      EXPECT_EQ(floats(outputs.at("z")), joined({three[1], three[2], best}));
      EXPECT_EQ(floats(outputs.at("flat")), joined({twice, square}));
      EXPECT_EQ(floats(outputs.at("b")), joined({three[1], three[2]}));
    }
  }
}

// Pieces may be many, of one size or of sizes in a list.
TEST(Sequences, have_hundreds_of_pieces) {
  for (const bool listed : {false, true}) {
    std::string sizes = "1";
    for (int i = 1; i < 150; ++i) sizes += ", 1";
    const TemporaryFolder folder;
    const Model model = Model::load(write_model(folder, R"(<ir_version: 10, opset_import: ["" : 21]>
      g (float[150, 2] x) => (float[rows, 2] y) {
        one = Constant <value = )" + (listed ? "int64[150] {" + sizes + "}" : "int64 {1}") +
                                                            R"(> ()
        pieces = SplitToSequence <axis = 0> (x, one)
        zero = Constant <value = int64 {0}> ()
        first = SequenceAt (pieces, zero)
        fewer = SequenceErase (pieces, zero)
        turned = SequenceInsert (fewer, first)
        y = ConcatFromSequence <axis = 0> (turned)
      })"));
    const std::vector<float> given = floats(ramp({150, 2}));
    for (const char* layout : {"x=[tp,-]", "x=[-,tp]"}) {
      Plan plan;
      plan.annotations = {{layout}};
      const Tensors outputs = Session(compile(model, Mesh::parse("tp=2"), plan)).run({{"x", ramp({150, 2})}});
      const std::vector<float> y = floats(outputs.at("y"));
      ASSERT_EQ(y.size(), given.size());
      for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], given[(i + 2) % given.size()]) << layout;
    }
  }
}

// What one computed number decides is given, whatever else must be known.
TEST(Sequences, leave_other_values_to_their_inputs) {
  const TemporaryFolder folder;
  const Model model = Model::load(write_model(folder, R"(<ir_version: 10, opset_import: ["" : 21]>
    g (float[batch, 4] x, int64 n) => (float[r] y, float[s] z) {
      q = SplitToSequence <axis = 0, keepdims = 0> (x)
      y = ConcatFromSequence <axis = 0> (q)
      init = Constant <value = float[1] {0}> ()
      z = Loop <body = body (int64 k, bool on, float[v] acc) => (bool go, float[v2] acc2) {
        o = Constant <value = float[1] {1}> ()
        acc2 = Concat <axis = 0> (acc, o)
        go = Identity (on)
      }> (n, "", init)
    })"));
  Session session(model, Mesh::parse("tp=2"), {.presets = "none"});
  for (const int64_t n : {2, 0, 3})
    for (const int64_t batch : {3, 1}) {
      const Tensors outputs = session.run({{"x", ramp({batch, 4})}, {"n", Tensor::of<int64_t>(DType::int64, {}, {n})}});
      EXPECT_EQ(floats(outputs.at("y")), floats(ramp({batch * 4})));
      EXPECT_EQ(outputs.at("z").dims, Dims{n + 1});
    }
  EXPECT_THAT(message_of([&] {
                session.run({{"n", Tensor::of<int64_t>(DType::int64, {}, {1})}});
              }),
              testing::HasSubstr("'x'"));
}

// What a loop or a branch makes is not made again.
TEST(Sequences, of_loops_stay_in_their_part) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& text) {
    const Model model = Model::load(write_model(folder, R"(<ir_version: 10, opset_import: ["" : 21]>
      g (float[n] x) => (float[m] y) {
        none = SequenceEmpty ()
        two = Constant <value = int64 {2}> () )" + text + "}"));
    return message_of([&] { Session(model).run({{"x", ramp({3})}}); });
  };
  const std::string filled = R"(
        filled = Loop <body = body (int64 k, bool on, float[] before) => (bool go, float[m] after) {
          after = SequenceInsert (before, x)
          go = Identity (on)
        }> (two, "", none)
        found = NonZero (x)
        row = Squeeze (found)
        some = Gather (x, row) )";
  EXPECT_THAT(refusal(filled + "more = SequenceInsert (filled, some)  y = ConcatFromSequence <axis = 0> (more)"),
              testing::AllOf(testing::HasSubstr("the sequence 'filled'"), testing::HasSubstr("runs in parts"),
                             testing::HasSubstr("ConcatFromSequence where it is computed")));
  EXPECT_THAT(refusal(R"(
        filled = Loop <body = body (int64 k, bool on, float[] before) => (bool go, float[m] after) {
          found = NonZero (x)
          row = Squeeze (found)
          some = Gather (x, row)
          after = SequenceInsert (before, some)
          go = Identity (on)
        }> (two, "", none)
        y = ConcatFromSequence <axis = 0> (filled))"),
              testing::AllOf(testing::HasSubstr("Loop producing 'filled'"), testing::HasSubstr("between parts"),
                             testing::HasSubstr("the sequence 'none'"), testing::HasSubstr("scan output")));
}

}  // namespace
}  // namespace tessera::test
