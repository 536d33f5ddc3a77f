// Tokens order communication: threaded through it, they form one chain; other patterns are refused by name.
#include "tessera/dialect/tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/dialect/schema.h"
#include "tessera/spmd/program.h"

namespace tessera::dialect {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Tokens : public testing::Test {
 protected:
  Tokens() {
    Value* x = graph().add_input("x", {DType::float32, Shape{2}});
    for (const char* name : {"first", "second", "third"}) {
      Node* node = graph().add_node("AllReduce", {x}, {std::string("y_") + name}, spmd::kCommDomain);
      node->name = name;
      node->set("axes", std::vector<std::string>{"tp"});
      node->outputs[0]->type = x->type;
      nodes_.push_back(node);
    }
    graph().outputs = {nodes_[0]->outputs[0], nodes_[1]->outputs[0], nodes_[2]->outputs[0]};
  }

  Graph& graph() { return *model_.graph; }
  std::string refusal() {
    try {
      strip_tokens(graph());
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::user);
      return error.what();
    }
    return "no error";
  }

  OnnxModel model_;
  std::vector<Node*> nodes_;
};

TEST_F(Tokens, are_threaded_and_stripped) {
  ASSERT_TRUE(thread_tokens(model_));
  graph().verify("test");
  EXPECT_EQ(nodes_[0]->inputs[1]->name, kFirstToken);
  EXPECT_EQ(nodes_[1]->inputs[1], nodes_[0]->outputs[1]);
  EXPECT_EQ(nodes_[2]->inputs[1], nodes_[1]->outputs[1]);
  EXPECT_EQ(graph().outputs.back()->name, kLastToken);
  strip_tokens(graph());
  graph().erase_dead();
  graph().verify("test");
  for (const Node* node : nodes_) {
    EXPECT_EQ(node->inputs.size(), 1u);
    EXPECT_EQ(node->outputs.size(), 1u);
  }
  EXPECT_EQ(graph().outputs.size(), 3u);
  EXPECT_EQ(graph().find(kFirstToken), nullptr);
}

TEST_F(Tokens, functions_take_and_return_them) {
  Function function;
  function.domain = spmd::kCommDomain;
  function.name = "Twice";
  function.body = std::make_unique<Graph>();
  Value* x = function.body->add_input("x", {});
  for (int i = 0; i < 2; ++i) {
    Node* node = function.body->add_node("AllReduce", {x}, {""}, spmd::kCommDomain);
    x = node->outputs[0];
  }
  function.body->outputs = {x};
  model_.functions.push_back(std::move(function));
  nodes_[1]->op_type = "Twice";
  thread_tokens(model_);
  const Graph& body = *model_.functions[0].body;
  ASSERT_EQ(body.inputs.size(), 2u);
  ASSERT_EQ(body.outputs.size(), 2u);
  EXPECT_EQ(body.nodes()[0]->inputs[1], body.inputs[1]);
  EXPECT_EQ(body.nodes()[1]->inputs[1], body.nodes()[0]->outputs[1]);
  EXPECT_EQ(body.outputs[1], body.nodes()[1]->outputs[1]);
  EXPECT_EQ(nodes_[2]->inputs[1], nodes_[1]->outputs[1]);
}

TEST_F(Tokens, two_readers_are_refused) {
  thread_tokens(model_);
  graph().set_input(nodes_[2], 1, nodes_[0]->outputs[1]);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("'third'"), HasSubstr("'second'"), HasSubstr("one reader")));
}

TEST_F(Tokens, second_start_is_refused) {
  thread_tokens(model_);
  graph().set_input(nodes_[2], 1, graph().constant_int64({0}, true));
  EXPECT_THAT(refusal(), AllOf(HasSubstr("'third'"), HasSubstr("is not that of"), HasSubstr("'second'")));
}

TEST_F(Tokens, other_readers_are_refused) {
  thread_tokens(model_);
  graph().add_node("Identity", {nodes_[2]->outputs[1]}, {"copy"});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("'third'"), HasSubstr("only communicating nodes may")));
}

TEST_F(Tokens, some_without_are_refused) {
  thread_tokens(model_);
  graph().set_input(nodes_[2], 1, nullptr);
  nodes_[2]->inputs.resize(1);
  Value* token = nodes_[2]->outputs[1];
  std::erase(graph().outputs, token);
  nodes_[2]->outputs.resize(1);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("'third'"), HasSubstr("has no token")));
}

TEST_F(Tokens, positions_are_said) {
  state_positions(model_);
  for (const Node* node : nodes_) EXPECT_EQ(node->get_string(spmd::kOrderAttribute, ""), "position");
  EXPECT_EQ(refusal(), "no error");
}

}  // namespace
}  // namespace tessera::dialect
