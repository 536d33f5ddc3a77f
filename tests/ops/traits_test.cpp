// What operators' records say beyond types and rules.
#include "ops/one_node.h"

namespace tessera::ops {
namespace {

TEST(Traits, indices_stay_below_what_they_index) {
  EXPECT_EQ(OneNode("Gather").operand("b 6 s").operand("4", DType::int64).set("axis", int64_t{1}).indices(), "1: [6]");
  EXPECT_EQ(OneNode("GatherElements").operand("b 6").operand("b 2", DType::int64).set("axis", int64_t{-1}).indices(),
            "1: [6]");
  EXPECT_EQ(OneNode("GatherND").operand("b 6 s").operand("4 2", DType::int64).indices(), "1: [b, 6]");
  EXPECT_EQ(OneNode("GatherND").operand("b 6 s").operand("b 2", DType::int64).set("batch_dims", int64_t{1}).indices(),
            "1: [6, s]");
  EXPECT_EQ(OneNode("ScatterND").operand("b 6 s").operand("4 1", DType::int64).operand("4 6 s").indices(), "1: [b]");
  EXPECT_EQ(OneNode("OneHot").operand("b", DType::int64).ints({9}).operand("2").indices(), "0: [9]");
}

TEST(Traits, of_elements_that_move) {
  auto moves = [](std::string_view type) { return find_op(type, "")->moves; };
  EXPECT_EQ(moves("Add"), Moves::nothing);
  EXPECT_EQ(moves("Concat"), Moves::some);
  for (const char* of_first : {"Slice", "Split", "Expand", "Gather"})
    EXPECT_EQ(moves(of_first), Moves::part) << of_first;
  EXPECT_EQ(moves("Transpose"), Moves::all);
  EXPECT_EQ(moves("Reshape"), Moves::in_order);
  EXPECT_TRUE(moves("Reshape") > moves("Transpose") && moves("Transpose") > moves("Slice") &&
              moves("Slice") > moves("Concat"));
}

TEST(Traits, name_operands_that_operators_have) {
  for (const OpDef* op : all_ops()) {
    EXPECT_TRUE(op->infer && op->rule) << op->type;
    EXPECT_TRUE(!op->table || op->indices) << op->type << " looks up without indices";
    EXPECT_TRUE(!op->elementwise || op->pass_through) << op->type;
    EXPECT_TRUE(!op->commutative || op->elementwise) << op->type;
  }
}

TEST(Traits, unread_operands_count_by_type_alone) {
  Graph graph;
  Value* x = graph.add_input("x", {DType::float32, Shape{2}});
  const Node& cast = *graph.add_node("CastLike", {x, x}, {"y"});
  EXPECT_TRUE(reads_elements(cast, 0));
  EXPECT_FALSE(reads_elements(cast, 1));
  EXPECT_TRUE(reads_elements(*graph.add_node("Unheard", {x}, {"z"}), 0)) << "nothing is known of it";
}

TEST(FactorKinds, say_what_becomes_of_results) {
  EXPECT_EQ(traits_of(FactorKind::pass).in_result, InResult::split);
  EXPECT_EQ(traits_of(FactorKind::index).in_result, InResult::split);
  EXPECT_EQ(traits_of(FactorKind::reduction).in_result, InResult::partial);
  EXPECT_EQ(traits_of(FactorKind::lookup).in_result, InResult::partial);
  EXPECT_EQ(traits_of(FactorKind::weighted).in_result, InResult::partial);
  EXPECT_EQ(traits_of(FactorKind::weighted).name, "weighted");
  EXPECT_EQ(traits_of(FactorKind::position).in_result, InResult::split);
  EXPECT_EQ(traits_of(FactorKind::position).name, "position");
  EXPECT_EQ(traits_of(FactorKind::whole).in_result, InResult::whole);
  EXPECT_FALSE((Factor{"a", 4, FactorKind::whole}.can_be_split()));
  EXPECT_TRUE((Factor{"a", 4, FactorKind::lookup}.makes_partial()));
}

}  // namespace
}  // namespace tessera::ops
