// If an If's condition follows from the rank, the branch that the rank takes replaces it.
#include "tessera/dialect/branches.h"

#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/mesh/sharding.h"
#include "tessera/onnx/metadata.h"

namespace tessera::dialect {
namespace {

const TensorType kType{DType::float32, Shape{2}};
const Mesh kMesh = Mesh::parse("pp=2,tp=2");

// A branch with the outer value x.
struct Branch {
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  Value* x = graph->add_value("x", ValueKind::input, kType);

  Value* node(std::string_view op, Value* operand, const std::string& result) {
    Value* made = graph->add_node(op, {operand}, {result})->outputs[0];
    made->type = kType;
    return made;
  }
};

class Branches : public testing::Test {
 protected:
  // If (true) with x and these results, in any graph in which `outer` is x.
  static Node* choice(Graph& graph, Value* outer, const Branch& branch, const std::vector<std::string>& results) {
    const uint8_t yes = 1;
    Value* truth = graph.add_constant(results[0] + ".truth", Tensor::copy_of(DType::boolean, {}, &yes, 1));
    Node* node = graph.add_node("If", {truth, outer}, results);
    node->captures = {"x"};
    node->set("then_branch", Region(branch.graph->clone()));
    node->set("else_branch", Region(branch.graph->clone()));
    for (Value* result : node->outputs) result->type = kType;
    return node;
  }

  void choose() {
    while (!branch_conditions(graph_, kMesh).empty()) choose_branches(graph_, kMesh, 1);
    graph_.verify("test");
    for (const auto& node : graph_.nodes()) EXPECT_FALSE(node->is("If"));
  }

  Graph graph_;
  Value* x_ = graph_.add_input("x", kType);
};

// A copy that states another value than its operand's stays, so that a communication of it moves that value.
TEST_F(Branches, ACopyWithMetadataOfItsOwnStaysANode) {
  for (bool of_a_result : {false, true})
    for (const char* says : {"", "x", "y"}) {
      Graph graph;
      Value* x = graph.add_input("x", kType);
      Branch branch;
      Value* from = of_a_result ? branch.node("Relu", branch.x, "relu") : branch.x;
      set_metadata(*from, "tessera.value", "x");
      Value* same = branch.node("Identity", from, "same");
      if (*says) set_metadata(*same, "tessera.value", says);
      branch.graph->outputs = {same};
      Node* node = choice(graph, x, branch, {"y"});
      graph.outputs = {graph.add_node("Tanh", {node->output()}, {"z"})->outputs[0]};
      graph.outputs[0]->type = kType;
      choose_branches(graph, kMesh, 0);
      graph.verify("test");
      EXPECT_EQ(graph.nodes().back()->input(0)->producer && graph.nodes().back()->input(0)->producer->is("Identity"),
                says == std::string("y"))
          << says;
    }
}

TEST_F(Branches, AnOutputThatIsHandedOnKeepsItsName) {
  Branch branch;
  branch.graph->outputs = {branch.node("Identity", branch.x, "same")};
  graph_.outputs = choice(graph_, x_, branch, {"y"})->outputs;
  choose();
  ASSERT_NE(graph_.find("y"), nullptr);
  EXPECT_EQ(graph_.outputs.at(0), graph_.find("y"));
  EXPECT_EQ(graph_.find("y")->producer->input(0), x_);
  EXPECT_EQ(x_->name, "x");
}

TEST_F(Branches, OuterValuesKeepTheirNames) {
  Value* before = graph_.add_node("Relu", {x_}, {"before"})->outputs[0];
  before->type = kType;
  Branch branch;
  branch.graph->outputs = {branch.node("Identity", branch.x, "same")};
  Node* choose_from = choice(graph_, before, branch, {"y"});
  Node* last = graph_.add_node("Relu", {choose_from->outputs[0]}, {"last"});
  last->outputs[0]->type = kType;
  graph_.outputs = {last->outputs[0]};
  choose();
  EXPECT_EQ(last->inputs[0], before);
  EXPECT_EQ(before->name, "before");
}

TEST_F(Branches, TwoResultsMayStandForOneValue) {
  Branch branch;
  Value* made = branch.node("Relu", branch.x, "made");
  branch.graph->outputs = {made, made};
  graph_.outputs = choice(graph_, x_, branch, {"y", "z"})->outputs;
  choose();
  ASSERT_NE(graph_.find("y"), nullptr);
  ASSERT_NE(graph_.find("z"), nullptr);
  EXPECT_EQ(graph_.outputs, (std::vector<Value*>{graph_.find("y"), graph_.find("z")}));
  EXPECT_EQ(graph_.find("y")->producer->op_type, "Relu");
  EXPECT_EQ(graph_.find("z")->producer->input(0), graph_.find("y"));
}

TEST_F(Branches, BranchesOfBranchesAreChosen) {
  Branch inner, outer;
  inner.graph->outputs = {inner.node("Relu", inner.x, "made")};
  outer.graph->outputs = choice(*outer.graph, outer.x, inner, {"nested"})->outputs;
  graph_.outputs = choice(graph_, x_, outer, {"y"})->outputs;
  choose();
  EXPECT_EQ(graph_.find("y")->producer->op_type, "Relu");
  EXPECT_EQ(graph_.find("y")->producer->input(0), x_);
}

TEST_F(Branches, WhatTheyAskIsAnExpressionOverAxisIndices) {
  Branch branch;
  branch.graph->outputs = {branch.node("Relu", branch.x, "made")};
  Node* index = graph_.add_node("AxisIndex", {}, {"index"}, "tessera.comm");
  index->set("axis", std::string("pp"));
  Node* equal = graph_.add_node("Equal", {index->outputs[0], graph_.constant_int64({1}, true)}, {"is_last"});
  Node* node = choice(graph_, x_, branch, {"y"});
  graph_.set_input(node, 0, equal->outputs[0]);
  graph_.outputs = node->outputs;
  const std::vector<Expr> conditions = branch_conditions(graph_, kMesh);
  ASSERT_EQ(conditions.size(), 1u);
  for (int64_t rank = 0; rank < kMesh.size(); ++rank)
    EXPECT_EQ(bind_rank(conditions[0], kMesh, kMesh.coordinates(rank)), Expr(rank / 2)) << rank;
}

TEST_F(Branches, WhatFollowsFromDataStays) {
  Branch branch;
  branch.graph->outputs = {branch.node("Relu", branch.x, "made")};
  Node* node = choice(graph_, x_, branch, {"y"});
  graph_.set_input(node, 0, graph_.add_input("is_asked", {DType::boolean, Shape{}}));
  graph_.outputs = node->outputs;
  EXPECT_TRUE(branch_conditions(graph_, kMesh).empty());
  choose_branches(graph_, kMesh, 1);
  EXPECT_EQ(graph_.find("y")->producer, node);
}

}  // namespace
}  // namespace tessera::dialect
