// ONNX's sequences: what is known of them one by one is gone after folding; what is not is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rewrite/build.h"
#include "tessera/base/error.h"
#include "tessera/ir/text.h"
#include "tessera/rewrite/pipeline.h"

namespace tessera::rewrite {
namespace {

using testing::HasSubstr;
using Types = std::map<std::string, int>;

OnnxModel folded(const std::string& nodes, const std::string& outputs = "float[m, n] y") {
  OnnxModel model =
      parse_text("<opset_import: [\"\" : 21]> g (float[2, 6] a, float[3, 6] b, float[2, 6] c, int64 i) => (" + outputs +
                 ") {" + nodes + "}");
  rewrite_model(model, {});
  return model;
}

std::string error_of(const std::string& nodes, const std::string& outputs = "float[m, n] y") {
  try {
    folded(nodes, outputs);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    return error.what();
  }
  return "none";
}

std::vector<std::string> operands_of(const OnnxModel& model, const std::string& result) {
  std::vector<std::string> names;
  for (const Value* operand : model.graph->find(result)->producer->inputs) names.push_back(operand->name);
  return names;
}

TEST(Lists, are_filled_one_by_one) {
  const std::string fill = R"(
    none = SequenceEmpty ()
    s1 = SequenceInsert (none, a)
    s2 = SequenceInsert (s1, b)
    zero = Constant <value = int64 {0}> ()
    last = Constant <value = int64 {-1}> ()
  )";
  const auto concatenated = [&](const std::string& more) {
    return operands_of(folded(fill + more + " y = ConcatFromSequence <axis = 0> (s)"), "y");
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(concatenated("s = Identity (s2)"), (Names{"a", "b"}));
  EXPECT_EQ(concatenated("s = SequenceInsert (s2, c)"), (Names{"a", "b", "c"}));
  EXPECT_EQ(concatenated("s = SequenceInsert (s2, c, zero)"), (Names{"c", "a", "b"}));
  EXPECT_EQ(concatenated("s = SequenceInsert (s2, c, last)"), (Names{"a", "c", "b"}));
  EXPECT_EQ(concatenated("two = Constant <value = int64 {2}> ()  s = SequenceInsert (s2, c, two)"),
            (Names{"a", "b", "c"}));
  EXPECT_EQ(concatenated("t = SequenceConstruct (a, b, c)  s = SequenceErase (t, last)"), (Names{"a", "b"}));
  EXPECT_EQ(concatenated("t = SequenceConstruct (a, b, c)  s = SequenceErase (t, zero)"), (Names{"b", "c"}));
  EXPECT_EQ(concatenated("t = SequenceConstruct (a, b, c)  s = SequenceErase (t)"), (Names{"a", "b"}));
}

TEST(Lists, are_stacked_along_a_new_axis) {
  for (const auto& [axis, shape] : std::map<int, std::string>{{0, "[2, 2, 6]"}, {1, "[2, 2, 6]"}, {-1, "[2, 6, 2]"}}) {
    const OnnxModel model = folded(
        "s = SequenceConstruct (a, c)  y = ConcatFromSequence <new_axis = 1, axis = " + std::to_string(axis) + "> (s)",
        "float[k, m, n] y");
    EXPECT_EQ(to_string(model.graph->find("y")->shape()), shape);
    EXPECT_EQ(histogram(*model.graph), (Types{{"Reshape", 2}, {"Concat", 1}}));
  }
}

TEST(Lists, have_a_known_length) {
  const OnnxModel model = folded(R"(
    s = SequenceConstruct (a, b, c)
    l = SequenceLength (s)
    rest = Constant <value = int64[1] {-1}> ()
    zero = Constant <value = int64[1] {0}> ()
    three = Unsqueeze (l, zero)
    shape = Concat <axis = 0> (three, rest)
    y = Reshape (a, shape))");
  EXPECT_EQ(to_string(model.graph->find("y")->shape()), "[3, 4]");
}

// Pieces without an operand `split` may lose their dimension.
TEST(Lists, hold_the_pieces_of_a_split) {
  const std::string at = "one = Constant <value = int64 {1}> ()  y = SequenceAt (s, one)";
  const auto shape = [&](const std::string& split, const std::string& output) {
    return to_string(folded(split + at, output).graph->find("y")->shape());
  };
  EXPECT_EQ(shape("s = SplitToSequence <axis = 1> (a)", "float[m, n] y"), "[2, 1]");
  EXPECT_EQ(shape("s = SplitToSequence <axis = 1, keepdims = 0> (a)", "float[m] y"), "[2]");
  const std::string four = "p = Constant <value = int64 {4}> ()", lists = "p = Constant <value = int64[2] {1, 5}> ()";
  EXPECT_EQ(shape(four + "s = SplitToSequence <axis = -1, keepdims = 0> (a, p)", "float[m, n] y"), "[2, 2]");
  EXPECT_EQ(shape(lists + "s = SplitToSequence <axis = 1> (a, p)", "float[m, n] y"), "[2, 5]");
}

TEST(Lists, share_one_split) {
  const OnnxModel model = folded(R"(
    four = Constant <value = int64 {4}> ()
    s = SplitToSequence <axis = -1> (a, four)
    first = Constant <value = int64 {0}> ()
    last = Constant <value = int64 {-1}> ()
    y = SequenceAt (s, first)
    z = SequenceAt (s, last))",
                                 "float[m, n] y, float[m, k] z");
  EXPECT_EQ(histogram(*model.graph), (Types{{"Split", 1}}));
  EXPECT_EQ(to_string(model.graph->find("z")->shape()), "[2, 2]");
}

TEST(Lists, of_equal_tensors_may_be_read_where_a_run_says) {
  const OnnxModel model = folded("s = SequenceConstruct (a, c)  y = SequenceAt (s, i)");
  EXPECT_EQ(histogram(*model.graph), (Types{{"Reshape", 2}, {"Concat", 1}, {"Gather", 1}}));
  EXPECT_EQ(to_string(model.graph->find("y")->shape()), "[2, 6]");
}

// A loop that fills one is written out, however long it is.
TEST(Lists, are_filled_by_loops) {
  for (const int trips : {1, 3, 40, 1000}) {
    const OnnxModel model =
        folded("none = SequenceEmpty ()  n = Constant <value = int64 {" + std::to_string(trips) + R"(}> ()
      s = Loop <body = body (int64 k, bool on, float[] before) => (bool go, float[] after) {
        x = Cast <to = 1> (k)
        row = Add (a, x)
        after = SequenceInsert (before, row)
        go = Identity (on)
      }> (n, "", none)
      y = ConcatFromSequence <axis = 0> (s))");
    EXPECT_EQ(to_string(model.graph->find("y")->shape()), "[" + std::to_string(2 * trips) + ", 6]");
    EXPECT_EQ(histogram(*model.graph)["Loop"], 0);
  }
}

// As many times the same tensor.
TEST(Lists, of_many_tensors_are_quickly_filled) {
  const OnnxModel model = folded(R"(none = SequenceEmpty ()  n = Constant <value = int64 {1000}> ()
    s = Loop <body = body (int64 k, bool on, float[] before) => (bool go, float[] after) {
      after = SequenceInsert (before, a)
      go = Identity (on)
    }> (n, "", none)
    y = ConcatFromSequence <axis = 0> (s))");
  EXPECT_EQ(to_string(model.graph->find("y")->shape()), "[2000, 6]");
}

TEST(Lists, are_handed_on_by_loops_that_never_run) {
  const OnnxModel model = folded(R"(s = SequenceConstruct (a, b)  n = Constant <value = int64 {0}> ()
    r = Loop <body = body (int64 k, bool on, float[] before) => (bool go, float[] after) {
      after = SequenceInsert (before, c)
      go = Identity (on)
    }> (n, "", s)
    y = ConcatFromSequence <axis = 0> (r))");
  EXPECT_EQ(to_string(model.graph->find("y")->shape()), "[5, 6]");
}

TEST(Lists, are_read_and_made_by_branches) {
  const std::string condition =
      "sum = ReduceSum <keepdims = 0> (a)  zero = Constant <value = float {0}> ()"
      "o = Greater (sum, zero)  at = Constant <value = int64 {1}> ()"
      "s = SequenceConstruct (a, c)";
  const OnnxModel read = folded(condition + R"(
    y = If <then_branch = t () => (float[2, 6] p) { p = SequenceAt (s, at) },
            else_branch = e () => (float[2, 6] q) { q = Neg (a) }> (o))");
  EXPECT_EQ(to_string(read.graph->find("y")->shape()), "[2, 6]");
  const OnnxModel made = folded(condition + R"(
    r = If <then_branch = t () => (float[] p) { p = SequenceInsert (s, a) },
            else_branch = e () => (float[] q) { q = SequenceConstruct (c, c, a) }> (o)
    y = ConcatFromSequence <axis = 0> (r))");
  EXPECT_EQ(to_string(made.graph->find("y")->shape()), "[6, 6]");
  EXPECT_THAT(error_of(condition + R"(
    r = If <then_branch = t () => (float[] p) { p = SequenceInsert (s, a) },
            else_branch = e () => (float[] q) { q = SequenceConstruct (c) }> (o)
    y = ConcatFromSequence <axis = 0> (r))"),
              HasSubstr("sequences of different lengths as 'r'"));
}

TEST(Lists, that_are_not_known_are_refused_by_name) {
  const std::string s = "s = SequenceConstruct (a, b)  two = Constant <value = int64 {2}> ()";
  EXPECT_THAT(error_of(s + "y = SequenceAt (s, i)"), HasSubstr("the position 'i'"));
  EXPECT_THAT(error_of(s + "y = SequenceAt (s, two)"), HasSubstr("position 2 is outside its sequence of 2 tensors"));
  EXPECT_THAT(error_of(s + "t = SequenceErase (s, two)  y = ConcatFromSequence <axis = 0> (t)"),
              HasSubstr("position 2 is outside its sequence of 2"));
  EXPECT_THAT(error_of("s = SequenceEmpty ()  y = ConcatFromSequence <axis = 0> (s)"), HasSubstr("sequence is empty"));
  EXPECT_THAT(error_of("s = SequenceEmpty ()  t = SequenceErase (s)  y = Identity (a)"),
              HasSubstr("sequence is empty"));
  EXPECT_THAT(error_of("j = Cast <to = 6> (a)  s = SequenceConstruct (a, j)  y = ConcatFromSequence <axis = 0> (s)"),
              HasSubstr("'a' is float32, and 'j' is int32"));
  EXPECT_THAT(error_of("s = SequenceConstruct (a, \"\", b)  y = ConcatFromSequence <axis = 0> (s)"),
              HasSubstr("a tensor of its sequence is missing"));
  EXPECT_THAT(error_of("s = SplitToSequence (a, i)  z = Constant <value = int64 {0}> ()  y = SequenceAt (s, z)"),
              HasSubstr("'i'"));
  EXPECT_THAT(error_of("y = SequenceAt (a, i)"), HasSubstr("the tensors of the sequence 'a' are not known"));
  EXPECT_THAT(error_of(s + "y = Relu (s)"), HasSubstr("'y'"));
  EXPECT_THAT(error_of("y = SequenceConstruct (a, b)", "float[] y"), HasSubstr("the sequence 'y' would be an output"));
  EXPECT_THAT(error_of(s + "y = Identity (s)", "float[] y"), HasSubstr("the sequence 'y' would be an output"));
  EXPECT_THAT(error_of(R"(none = SequenceEmpty ()
      s = Loop <body = body (int64 k, bool on, float[] before) => (bool go, float[] after) {
        after = SequenceInsert (before, a)
        go = Identity (on)
      }> (i, "", none)
      y = ConcatFromSequence <axis = 0> (s))"),
              HasSubstr("carries a sequence of tensors"));
}

}  // namespace
}  // namespace tessera::rewrite
