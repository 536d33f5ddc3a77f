// What collectives of one bucket must be.
#include "tessera/dialect/buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/spmd/program.h"

namespace tessera::dialect {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Buckets : public testing::Test {
 protected:
  Node* reduce(const std::string& name, Value* operand, std::optional<int64_t> bucket = 0) {
    Node* node = graph_.add_node("AllReduce", {operand}, {name}, spmd::kCommDomain);
    node->name = name;
    node->outputs[0]->type = operand->type;
    node->set("axes", std::vector<std::string>{"dp"});
    if (bucket) node->set("bucket", *bucket);
    return node;
  }
  Value* relu(Value* operand) {
    Value* result = graph_.add_node("Relu", {operand}, {"r"})->outputs[0];
    result->type = operand->type;
    return result;
  }
  std::string refusal() const {
    try {
      buckets_of(graph_);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::user);
      return error.what();
    }
    return "no error";
  }

  Graph graph_;
  Value* x_ = graph_.add_input("x", {DType::float32, Shape{4}});
};

TEST_F(Buckets, are_neighbours_in_the_order_of_communication) {
  Node *a = reduce("a", x_), *b = reduce("b", relu(x_)), *c = reduce("c", x_, 1);
  EXPECT_EQ(buckets_of(graph_), (std::vector<std::vector<const Node*>>{{a, b}, {c}}));
  reduce("d", x_);
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("AllReduce 'd'"), HasSubstr("'c' comes between it and"), HasSubstr("bucket 0")));
}

TEST_F(Buckets, are_not_interrupted_by_what_is_in_none) {
  reduce("a", x_);
  reduce("b", x_, std::nullopt);
  reduce("c", x_);
  EXPECT_THAT(refusal(), HasSubstr("'b' comes between it and"));
}

TEST_F(Buckets, do_not_depend_on_each_other) {
  Node* a = reduce("a", x_);
  reduce("b", x_);
  reduce("c", relu(a->outputs[0]));
  EXPECT_THAT(refusal(), AllOf(HasSubstr("'c'"), HasSubstr("depends on another collective of bucket 0")));
}

TEST_F(Buckets, are_alike) {
  reduce("a", x_);
  Node* b = reduce("b", x_);
  EXPECT_EQ(refusal(), "no error");
  b->set("reduction", std::string("max"));
  EXPECT_THAT(refusal(), HasSubstr("differs from it in kind, axes, reduction or type"));
  b->set("reduction", std::string("sum"));
  EXPECT_EQ(refusal(), "no error") << "as without the attribute";
  b->set("axes", std::vector<std::string>{"tp"});
  EXPECT_THAT(refusal(), HasSubstr("differs"));
  b->set("axes", std::vector<std::string>{"dp"});
  b->outputs[0]->type = {DType::float64, Shape{4}};
  EXPECT_THAT(refusal(), HasSubstr("differs"));
}

TEST_F(Buckets, hold_no_collectives_with_a_root) {
  reduce("a", x_)->op_type = "Broadcast";
  EXPECT_THAT(refusal(), HasSubstr("it cannot share a bucket"));
}

}  // namespace
}  // namespace tessera::dialect
