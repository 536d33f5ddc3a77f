#include "tessera/spmd/layout/sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/ir/text.h"
#include "tessera/rewrite/pipeline.h"

namespace tessera::spmd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

Expr e(std::string_view text) {
  return Expr::parse(text).value();
}

SizeDemands equal(std::string_view a, std::string_view b, bool broadcasts = false) {
  return {{{e(a), e(b), "Add 'y'", broadcasts}}, {}};
}

SizeDemands at_least_one(std::vector<std::string> extents) {
  SizeDemands demands;
  for (const std::string& extent : extents) demands.at_least.push_back({e(extent), 1, "MaxPool 'p'", true});
  return demands;
}

Sizes of_model(std::string_view text, const Hints& given, const Hints& wished) {
  OnnxModel model = parse_text("<ir_version: 10, opset_import: [\"\" : 24]>\n" + std::string(text));
  rewrite::rewrite_model(model);
  return sizes_that_run(demands_of(*model.graph), given, wished);
}

TEST(Sizes, an_equality_defines_the_symbol_that_is_a_sum) {
  const Hints wished = {{"past", 16}, {"sequence", 16}, {"total", 16}};
  for (const auto& demands : {equal("total", "past + sequence"), equal("past + sequence", "total", true)}) {
    const Sizes sizes = sizes_that_run(demands, {}, wished);
    EXPECT_THAT(sizes.of, ElementsAre(Pair("past", 16), Pair("sequence", 16), Pair("total", 32)));
    EXPECT_THAT(sizes.unmet, IsEmpty());
  }
}

TEST(Sizes, what_is_given_stays) {
  const Hints wished = {{"past", 16}, {"sequence", 16}};
  const Sizes sizes = sizes_that_run(equal("total", "past + sequence"), {{"total", 9}}, wished);
  EXPECT_EQ(sizes.of.at("total"), 9);
  EXPECT_EQ(sizes.of.at("past") + sizes.of.at("sequence"), 9);
  EXPECT_THAT(sizes.unmet, IsEmpty());
  EXPECT_EQ(sizes_that_run(equal("n", "3"), {}, {{"n", 16}}).of.at("n"), 3) << "a model traced for one size";
}

TEST(Sizes, an_extent_given_as_one_broadcasts) {
  const Sizes sizes = sizes_that_run(equal("s", "t", true), {{"s", 1}}, {{"t", 16}});
  EXPECT_THAT(sizes.of, ElementsAre(Pair("s", 1), Pair("t", 16)));
  EXPECT_THAT(sizes.unmet, IsEmpty());
}

TEST(Sizes, equalities_follow_from_each_other) {
  SizeDemands demands = equal("a", "b + c");
  demands.equal.push_back({e("b"), e("2*d"), "Concat 'k'"});
  demands.equal.push_back({e("min(a, 40)"), e("a"), "Slice 't'"});
  const Sizes sizes = sizes_that_run(demands, {}, {{"a", 16}, {"b", 16}, {"c", 16}, {"d", 16}});
  EXPECT_EQ(sizes.of.at("b"), 2 * sizes.of.at("d"));
  EXPECT_EQ(sizes.of.at("a"), sizes.of.at("b") + sizes.of.at("c"));
  EXPECT_LE(sizes.of.at("a"), 40);
  EXPECT_THAT(sizes.unmet, IsEmpty());
}

TEST(Sizes, a_model_traced_for_one_token_gets_one) {
  SizeDemands demands = equal("64", "16*floordiv(64*batch, 16*batch*sequence)");
  demands.at_least.push_back({e("sequence - 1"), 1, "Slice 'causal'"});
  const Sizes sizes = sizes_that_run(demands, {}, {{"batch", 2}, {"sequence", 16}});
  EXPECT_THAT(sizes.of, ElementsAre(Pair("batch", 2), Pair("sequence", 1)));
  EXPECT_THAT(sizes.unmet, IsEmpty());
}

// Whatever an operator requires, by its inference or its rule.
TEST(Sizes, operators_get_the_extents_that_they_require) {
  const Sizes recurrent = of_model(
      "m (float[t, n, i] x, float[1, rows, columns] w, float[1, 12, 3] r) => (float[t, 1, n, 3] y) {\n"
      "  y = LSTM <hidden_size = 3> (x, w, r)\n"
      "}\n",
      {}, {{"t", 5}, {"n", 2}, {"i", 4}, {"rows", 16}, {"columns", 16}});
  EXPECT_EQ(recurrent.of.at("rows"), 12);
  EXPECT_EQ(recurrent.of.at("columns"), recurrent.of.at("i"));
  EXPECT_THAT(recurrent.unmet, IsEmpty());
  const Sizes masked = of_model(
      "m (float[2, 4, s, 8] q, float[2, 4, 6, 8] k, float[2, 4, 6, 8] v, float[rows, 6] mask)"
      " => (float[2, 4, s, 8] y) { y = Attention (q, k, v, mask) }\n",
      {}, {{"s", 5}, {"rows", 16}});
  EXPECT_TRUE(masked.of.at("rows") == 1 || masked.of.at("rows") == masked.of.at("s")) << masked.of.at("rows");
  EXPECT_THAT(masked.unmet, IsEmpty());
}

// As parts of a model have it, whose sizes come from the part before.
TEST(Sizes, elements_fill_the_shape_that_they_are_given) {
  EXPECT_EQ(of_model("m (float[rows, 32] x) => (float[2, 8, 32] y) <int64[3] shape = {2, 8, 32}> {\n"
                     "  y = Reshape (x, shape)\n}",
                     {}, {{"rows", 7}})
                .of.at("rows"),
            16);
  const Sizes sizes = of_model(
      "m (float[2, s, rows, 4] x) => (float[2, 3, 5, 4] y) <int64[4] shape = {2, 3, 5, 4}> {\n"
      "  y = Reshape (x, shape)\n}",
      {{"s", 3}}, {{"rows", 16}});
  EXPECT_EQ(sizes.of.at("rows"), 5);
  EXPECT_THAT(sizes.unmet, IsEmpty());
}

TEST(Sizes, windows_get_something_to_look_at) {
  const Sizes sizes = sizes_that_run(at_least_one({"floordiv(width - 30, 4) + 1", "floordiv(height, 32)"}), {},
                                     {{"height", 16}, {"width", 16}, {"batch", 2}});
  EXPECT_THAT(sizes.of, ElementsAre(Pair("batch", 2), Pair("height", 32), Pair("width", 32)));
  EXPECT_THAT(sizes.unmet, IsEmpty());
}

TEST(Sizes, what_cannot_be_met_is_said) {
  EXPECT_THAT(sizes_that_run(at_least_one({"floordiv(width, 32)"}), {{"width", 20}}, {}).unmet,
              HasSubstr("MaxPool 'p' needs floordiv(width, 32) to be 1 or more, which is 0"));
  EXPECT_THAT(sizes_that_run(at_least_one({"3 - width"}), {{"width", 3}}, {}).unmet, HasSubstr("which is 0"));
  EXPECT_THAT(sizes_that_run(equal("n", "2*n + 1"), {}, {{"n", 16}}).unmet, HasSubstr("Add 'y' needs n = 2*n + 1"));
}

TEST(Sizes, stacked_poolings_and_strides_get_an_image) {
  const Sizes sizes = of_model(R"(
recognizer (float[N, 3, 48, width] x) => (float[N, 4, c, d] y) <float[4, 3, 3, 3] w, float[4, 4, 3, 3] v> {
  a = Conv <strides = [2, 2]> (x, w)
  b = Conv <strides = [2, 2]> (a, v)
  p = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (b)
  y = AveragePool <kernel_shape = [2, 2]> (p)
})",
                               {}, {{"N", 2}, {"width", 16}});
  EXPECT_THAT(sizes.unmet, IsEmpty());
  EXPECT_EQ(sizes.of.at("width"), 32);
}

// A mask over past and present, added, or gathered by position.
constexpr std::string_view kDecoder = R"(
decoder (float[batch, sequence, 8] x, float[batch, past, 8] cache, float[batch, total] mask)
    => (float[batch, sequence, 8] y, float[batch, n, 8] keys) <float[8, 8] w> {
  k = MatMul (x, w)
  keys = Concat <axis = 1> (cache, k)
  turned = Transpose <perm = [0, 2, 1]> (keys)
  scores = MatMul (x, turned)
  middle = Constant <value_ints = [1]> ()
  @MASK@
  masked = Add (scores, wide)
  p = Softmax <axis = -1> (masked)
  y = MatMul (p, keys)
})";

TEST(Sizes, a_decoder_with_a_cache_gets_a_total_of_past_and_sequence) {
  for (const char* mask : {"wide = Unsqueeze (mask, middle)", R"(zero = Constant <value_int = 0> ()
  one = Constant <value_int = 1> ()
  shape = Shape (keys)
  length = Gather (shape, one)
  positions = Range (zero, length, one)
  picked = Gather <axis = 1> (mask, positions)
  wide = Unsqueeze (picked, middle))"}) {
    std::string text(kDecoder);
    text.replace(text.find("@MASK@"), 6, mask);
    const Sizes sizes = of_model(text, {}, {{"batch", 2}, {"past", 16}, {"sequence", 16}, {"total", 16}});
    EXPECT_THAT(sizes.of, ElementsAre(Pair("batch", 2), Pair("past", 16), Pair("sequence", 16), Pair("total", 32)));
    EXPECT_THAT(sizes.unmet, IsEmpty()) << mask;
  }
}

}  // namespace
}  // namespace tessera::spmd
