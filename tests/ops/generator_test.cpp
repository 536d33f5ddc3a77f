#include <gmock/gmock.h>

#include "ops/one_node.h"

namespace tessera::ops {
namespace {

using testing::HasSubstr;

TEST(Constant, HasTheTypeOfItsAttribute) {
  OneNode tensor("Constant");
  tensor.set("value", Tensor::of<float>(DType::float32, {1, 2}, {1, 2}));
  EXPECT_EQ(tensor.type(), "float32 [1, 2]");
  EXPECT_EQ(tensor.rule(), " -> 1 1");

  OneNode list("Constant");
  list.set("value_ints", std::vector<int64_t>{2, -1});
  EXPECT_EQ(list.type(), "int64 [2]");
  EXPECT_EQ(list.content(), "[2, -1]");

  OneNode number("Constant");
  number.set("value_float", 0.5f);
  EXPECT_EQ(number.type(), "float32 []");

  OneNode text("Constant");
  text.set("value_string", "x");
  EXPECT_THAT(text.error(), HasSubstr("only dense numbers are supported"));
}

TEST(ConstantOfShape, FillsAShapeThatMayBeSymbolic) {
  OneNode node("ConstantOfShape");
  node.expressions({b, 1, s});
  EXPECT_EQ(node.type(), "float32 [b, 1, s]");
  EXPECT_EQ(node.rule(), "1 -> a 1 c");
  EXPECT_EQ(node.localized("c", 2),
            "ConstantOfShape([b, 1, floordiv(-@x + s + 1, 2)]) -> "
            "float32 [b, 1, floordiv(-@x + s + 1, 2)]\n");

  OneNode ones("ConstantOfShape");
  ones.ints({3}).set("value", Tensor::of<int64_t>(DType::int64, {1}, {1}));
  EXPECT_EQ(ones.type(), "int64 [3]");
  EXPECT_EQ(ones.content(), "[1, 1, 1]");

  OneNode wrong("ConstantOfShape");
  wrong.ints({-3});
  EXPECT_THAT(wrong.error(), HasSubstr("the shape [-3] has a negative extent"));
}

TEST(Range, HasASymbolicLength) {
  OneNode node("Range");
  node.ints({0}, true).expressions({s}, true).ints({1}, true);
  EXPECT_EQ(node.type(), "int64 [s]");
  EXPECT_EQ(node.content(), "unknown");
  EXPECT_EQ(node.rule(), ", ,  -> a | a: index");

  OneNode cached("Range");
  cached.expressions({past}, true).expressions({past + s}, true).ints({1}, true);
  EXPECT_EQ(cached.type(), "int64 [s]");

  OneNode known("Range");
  known.ints({7}, true).ints({0}, true).ints({-3}, true);
  EXPECT_EQ(known.content(), "[7, 4, 1]");

  OneNode whole("Range");
  whole.ints({9}, true).ints({-3}, true).ints({-3}, true);
  EXPECT_EQ(whole.content(), "[9, 6, 3, 0]");

  OneNode empty("Range");
  empty.ints({3}, true).ints({3}, true).ints({1}, true);
  EXPECT_EQ(empty.type(), "int64 [0]");
}

TEST(Range, StartsWhereTheRanksPartStarts) {
  OneNode node("Range");
  node.ints({5}, true).ints({21}, true).ints({2}, true);
  EXPECT_EQ(node.localized("a", 2), "Range([8*@x + 5], [8*@x + 13], const_2) -> int64 [4]\n");
}

// PyTorch's arange(width, dtype = float32), and the same from 0.5 on.
TEST(Range, OfFloatsFollowsExtents) {
  Graph graph;
  auto scalar = [&](double x) { return graph.constant_scalar(DType::float32, x); };
  auto width = [&] {
    Node* cast = graph.add_node("Cast", {graph.add_expression("", {floordiv(s, 2)}, true)}, {""});
    cast->set("to", static_cast<int64_t>(DType::float32));
    return cast->output();
  };
  Node* whole = graph.add_node("Range", {scalar(0), width(), scalar(1)}, {"whole"});
  Value* end = graph.add_node("Add", {width(), scalar(0.5)}, {""})->output();
  Node* between = graph.add_node("Range", {scalar(0.5), end, scalar(1)}, {"between"});
  Node* halves = graph.add_node("Range", {scalar(0), width(), scalar(0.5)}, {"halves"});
  infer_types(graph);
  EXPECT_EQ(to_string(whole->output()->shape()), "[floordiv(s, 2)]");
  EXPECT_EQ(op_of(*whole).rule(*whole).str(), ", ,  -> a | a: index");
  EXPECT_EQ(to_string(between->output()->shape()), "[floordiv(s, 2)]");
  EXPECT_EQ(op_of(*between).rule(*between).str(), ", ,  -> 1");
  EXPECT_EQ(to_string(halves->output()->shape()), "[2*floordiv(s, 2)]");
}

TEST(Range, OfFloatsNeedsConstants) {
  Graph graph;
  auto scalar = [&](double x) { return graph.constant_scalar(DType::float32, x); };
  Node* node = graph.add_node("Range", {scalar(0), scalar(1), scalar(0.3)}, {"y"});
  infer_types(graph);
  EXPECT_EQ(to_string(node->output()->shape()), "[4]");
  EXPECT_EQ(op_of(*node).rule(*node).str(), ", ,  -> 1");

  OneNode unknown("Range");
  unknown.operand("").operand("").operand("");
  EXPECT_THAT(unknown.error(), HasSubstr("its start ('A') depends on data"));

  OneNode still("Range");
  still.ints({0}, true).ints({4}, true).ints({0}, true);
  EXPECT_THAT(still.error(), HasSubstr("its delta is 0"));
}

TEST(Range, KeepsALengthThatTheModelDeclares) {
  Graph graph;
  Value* limit = graph.add_input("limit", {DType::int64, Shape{}});
  Node* node =
      graph.add_node("Range", {graph.constant_int64({0}, true), limit, graph.constant_int64({1}, true)}, {"y"});
  node->output()->type = {DType::int64, Shape{s}};
  infer_types(graph);
  EXPECT_EQ(to_string(node->output()->shape()), "[s]");
  EXPECT_EQ(op_of(*node).rule(*node).str(), ", ,  -> 1");
}

TEST(EyeLike, DependsOnThePlaceOfItsPart) {
  OneNode node("EyeLike");
  node.operand("n m").set("dtype", static_cast<int64_t>(DType::bfloat16));
  EXPECT_EQ(node.type(), "bfloat16 [n, m]");
  EXPECT_EQ(node.rule(), "a b -> a b | a: index, b: index");
}

TEST(Range, NeverEndsByStepsOfZero) {
  OneNode range("Range");
  range.number(DType::float32, 0).number(DType::float32, 3).number(DType::float32, 0);
  EXPECT_THAT(range.error(), testing::HasSubstr("its delta is 0"));
}

}  // namespace
}  // namespace tessera::ops
