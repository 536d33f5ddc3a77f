// The dialect's table: what nodes must have, and the types that they give.
#include "tessera/dialect/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/spmd/program.h"

namespace tessera::dialect {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class DialectNode : public testing::Test {
 protected:
  Node& make(std::string_view op, const Shape& operand, size_t results = 1) {
    Value* data = graph_.add_input("x", {DType::float32, operand});
    node_ = graph_.add_node(op, {data}, std::vector<std::string>(results), spmd::kCommDomain);
    node_->name = "n";
    node_->set("axes", std::vector<std::string>{"tp"});
    return *node_;
  }
  Shape inferred() {
    check_node(*node_, mesh_);
    infer_node(*node_, mesh_);
    EXPECT_EQ(node_->output()->dtype(), DType::float32);
    return node_->output()->shape();
  }
  std::string refusal() const {
    try {
      check_node(*node_, mesh_);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::user);
      return error.what();
    }
    return "no error";
  }
  // On the rank at these coordinates.
  int64_t at(const Expr& expr, const std::vector<int64_t>& coordinates) const {
    return *bind_rank(expr, mesh_, coordinates).constant();
  }

  Mesh mesh_ = Mesh::parse("dp=2,tp=3");
  Graph graph_;
  Node* node_ = nullptr;
};

TEST_F(DialectNode, what_keeps_its_type) {
  for (const char* op : {"AllReduce", "Broadcast", "Reduce", "Permute"}) {
    make(op, {4, Expr::symbol("s")});
    if (std::string_view(op) == "Permute") node_->set("targets", std::vector<int64_t>{1, 2, 0});
    if (std::string_view(op) == "Broadcast" || std::string_view(op) == "Reduce") node_->set("root", int64_t{2});
    EXPECT_EQ(inferred(), (Shape{4, Expr::symbol("s")})) << op;
  }
}

TEST_F(DialectNode, gathered_dimension_is_the_sum_of_members) {
  make("AllGather", {4, 2}).set("dim", int64_t{0});
  EXPECT_EQ(inferred(), (Shape{12, 2}));
  node_->set("extent", std::string("4 - @tp"));
  EXPECT_EQ(inferred(), (Shape{4 + 3 + 2, 2}));
}

TEST_F(DialectNode, block_is_balanced_unless_stated) {
  make("ReduceScatter", {2, 11}).set("dim", int64_t{1});
  Shape shape = inferred();
  for (int64_t tp : {0, 1, 2}) EXPECT_EQ(at(shape[1], {1, tp}), tp < 2 ? 4 : 3);
  node_->set("extent", std::string("1 + 2*@tp"));
  EXPECT_EQ(at(inferred()[1], {0, 2}), 5);
}

TEST_F(DialectNode, all_to_all_changes_two_dimensions) {
  make("AllToAll", {6, 5}).set("split_dim", int64_t{0});
  node_->set("concat_dim", int64_t{1});
  EXPECT_EQ(inferred()[1], Expr(15));
  EXPECT_EQ(at(inferred()[0], {0, 1}), 2);
}

TEST_F(DialectNode, received_shape_is_an_operand) {
  Value* peer = graph_.constant_int64({1}, true);
  Value* shape = graph_.constant_int64({2, 7});
  node_ = graph_.add_node("Recv", {peer, shape}, {"y"}, spmd::kCommDomain);
  node_->set("axes", std::vector<std::string>{"tp"});
  node_->set("dtype", static_cast<int64_t>(DType::float32));
  EXPECT_EQ(inferred(), (Shape{2, 7}));
}

TEST_F(DialectNode, ranks_are_counted_row_major) {
  Node* rank = graph_.add_node("RankId", {}, {"rank"}, spmd::kCommDomain);
  Node* index = graph_.add_node("AxisIndex", {}, {"index"}, spmd::kCommDomain);
  index->set("axis", std::string("tp"));
  Node* next = graph_.add_node("Neighbor", {}, {"next"}, spmd::kCommDomain);
  next->set("axes", std::vector<std::string>{"tp"});
  next->set("offset", int64_t{1});
  for (Node* node : {rank, index, next}) {
    check_node(*node, mesh_);
    infer_node(*node, mesh_);
  }
  auto value = [&](const Node* node, std::vector<int64_t> at) {
    return *bind_rank(node->outputs[0]->content->front(), mesh_, at).constant();
  };
  EXPECT_EQ(value(rank, {1, 2}), 5);
  EXPECT_EQ(value(index, {1, 2}), 2);
  EXPECT_EQ(value(next, {1, 1}), 5);
  EXPECT_EQ(value(next, {1, 2}), 3) << "around the end";
}

TEST_F(DialectNode, operator_that_does_not_exist) {
  make("AllDance", {2});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("[dialect]"), HasSubstr("'n'"), HasSubstr("has no operator AllDance")));
}

TEST_F(DialectNode, attribute_that_does_not_exist) {
  make("AllReduce", {2}).set("dim", int64_t{0});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("'n'"), HasSubstr("AllReduce has no attribute 'dim'; it has axes")));
}

TEST_F(DialectNode, attribute_that_is_missing) {
  make("AllGather", {2});
  EXPECT_THAT(refusal(), HasSubstr("its attribute dim is missing; give it an integer"));
}

TEST_F(DialectNode, attribute_of_another_type) {
  make("AllGather", {2}).set("dim", std::string("0"));
  EXPECT_THAT(refusal(), HasSubstr("its attribute dim must be an integer"));
}

TEST_F(DialectNode, operand_that_is_missing) {
  node_ = graph_.add_node("Send", {graph_.add_input("x", {DType::float32, Shape{2}})}, {}, spmd::kCommDomain);
  node_->set("axes", std::vector<std::string>{"tp"});
  EXPECT_THAT(refusal(), HasSubstr("its operand 1, peer, is missing"));
}

TEST_F(DialectNode, root_outside_of_the_group) {
  make("Broadcast", {2}).set("root", int64_t{3});
  EXPECT_THAT(refusal(), HasSubstr("its root is member 3; the group has the members 0 to 2"));
}

TEST_F(DialectNode, two_members_that_send_to_one) {
  make("Permute", {2}).set("targets", std::vector<int64_t>{1, 1, 0});
  EXPECT_THAT(refusal(), HasSubstr("two members send to member 1"));
}

TEST_F(DialectNode, extent_over_an_axis_that_the_mesh_lacks) {
  make("AllGather", {2}).set("dim", int64_t{0});
  node_->set("extent", std::string("4*@nowhere"));
  EXPECT_THAT(refusal(), HasSubstr("its extent '4*@nowhere' names the axis 'nowhere', which the mesh"));
  node_->set("extent", std::string("4 +"));
  EXPECT_THAT(refusal(), HasSubstr("its extent '4 +' is not an expression"));
}

TEST_F(DialectNode, axis_that_the_mesh_lacks) {
  make("AllReduce", {2}).set("axes", std::vector<std::string>{"pp"});
  EXPECT_THAT(refusal(), HasSubstr("'pp' is not an axis of the mesh"));
}

}  // namespace
}  // namespace tessera::dialect
