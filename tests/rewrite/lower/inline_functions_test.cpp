#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rewrite/build.h"
#include "tessera/base/error.h"
#include "tessera/rewrite/passes.h"

namespace tessera::rewrite {
namespace {

using testing::HasSubstr;

Function function_named(std::string name) {
  return {"local", std::move(name), "", std::make_unique<Graph>(), {}, {}, {{"", 20}}, ""};
}

/// scaled(x) = LeakyRelu<alpha = @slope>(x)
Function leaky(std::vector<Attribute> defaults = {}) {
  Function function = function_named("leaky");
  Value* x = function.body->add_input("x", {});
  function.body->outputs = {node(*function.body, "LeakyRelu", {x}, "y", {{"alpha", AttributeReference{"slope", 1}}})};
  function.defaults = std::move(defaults);
  return function;
}

Node* call(Graph& graph, std::string_view function, Value* operand, std::string_view result) {
  return graph.add_node(function, {operand}, {std::string(result)}, "local");
}

TEST(InlineFunctions, call_becomes_the_body_and_keeps_the_output_name) {
  OnnxModel model;
  model.functions.push_back(leaky());
  Node* first = call(*model.graph, "leaky", input(*model.graph, "x", {"4"}), "y");
  first->set("slope", 0.25f);
  model.graph->outputs = {first->outputs[0]};
  inline_functions(model);
  model.graph->verify("test");
  ASSERT_EQ(model.graph->nodes().size(), 1u);
  EXPECT_EQ(model.graph->nodes()[0]->op_type, "LeakyRelu");
  EXPECT_EQ(model.graph->nodes()[0]->get_float("alpha", 0), 0.25f);
  EXPECT_EQ(model.graph->outputs[0]->name, "y");
  EXPECT_TRUE(model.functions.empty());
}

TEST(InlineFunctions, attribute_left_out_takes_the_default_or_goes_away) {
  for (bool has_default : {true, false}) {
    OnnxModel model;
    model.functions.push_back(leaky(has_default ? std::vector<Attribute>{{"slope", 0.5f}} : std::vector<Attribute>{}));
    model.graph->outputs = {call(*model.graph, "leaky", input(*model.graph, "x", {"4"}), "y")->outputs[0]};
    inline_functions(model);
    const Attribute* alpha = model.graph->nodes()[0]->find_attribute("alpha");
    EXPECT_EQ(alpha != nullptr, has_default);
    if (alpha) {
      EXPECT_EQ(std::get<float>(alpha->value), 0.5f);
    }
  }
}

TEST(InlineFunctions, nested_calls_pass_attributes_through) {
  OnnxModel model;
  Function outer = function_named("outer");
  Node* inner_call = call(*outer.body, "leaky", outer.body->add_input("x", {}), "t");
  inner_call->set("slope", AttributeReference{"steep", 1});
  outer.body->outputs = {node(*outer.body, "Neg", {inner_call->outputs[0]}, "y")};
  model.functions.push_back(std::move(outer));
  model.functions.push_back(leaky());
  Value* x = input(*model.graph, "x", {"4"});
  Node* first = call(*model.graph, "outer", x, "a");
  Node* second = call(*model.graph, "outer", first->outputs[0], "b");
  first->set("steep", 0.125f);
  second->set("steep", 0.25f);
  model.graph->outputs = {second->outputs[0]};
  inline_functions(model);
  model.graph->verify("test");
  EXPECT_EQ(histogram(*model.graph), (std::map<std::string, int>{{"LeakyRelu", 2}, {"Neg", 2}}));
  EXPECT_EQ(model.graph->nodes()[0]->get_float("alpha", 0), 0.125f);
  EXPECT_EQ(model.graph->nodes()[2]->get_float("alpha", 0), 0.25f);
}

TEST(InlineFunctions, function_that_returns_its_operand_leaves_an_identity_at_an_output) {
  OnnxModel model;
  Function same = function_named("same");
  same.body->outputs = {same.body->add_input("x", {})};
  model.functions.push_back(std::move(same));
  model.graph->outputs = {call(*model.graph, "same", input(*model.graph, "x", {"4"}), "y")->outputs[0]};
  inline_functions(model);
  model.graph->verify("test");
  EXPECT_EQ(histogram(*model.graph), (std::map<std::string, int>{{"Identity", 1}}));
  EXPECT_EQ(model.graph->outputs[0]->name, "y");
}

TEST(InlineFunctions, recursion_is_refused) {
  OnnxModel model;
  for (const char* names : {"ab", "ba"}) {
    Function function = function_named(std::string(1, names[0]));
    function.body->outputs = {
        call(*function.body, std::string(1, names[1]), function.body->add_input("x", {}), "y")->outputs[0]};
    model.functions.push_back(std::move(function));
  }
  call(*model.graph, "a", input(*model.graph, "x", {"4"}), "y");
  EXPECT_THAT([&] { inline_functions(model); }, testing::ThrowsMessage<Error>(HasSubstr("calls itself")));
}

TEST(InlineFunctions, functions_that_double_each_other_are_refused_before_they_are_expanded) {
  for (int levels : {3, 60}) {
    OnnxModel model;
    for (int i = 0; i <= levels; ++i) {
      Function function = function_named("f" + std::to_string(i));
      Graph& body = *function.body;
      Value* x = body.add_input("x", {});
      const std::string inner = "f" + std::to_string(i - 1);
      body.outputs = {i == 0 ? node(body, "Neg", {x})
                             : call(body, inner, call(body, inner, x, "t")->outputs[0], "y")->outputs[0]};
      model.functions.push_back(std::move(function));
    }
    model.graph->outputs = {
        call(*model.graph, "f" + std::to_string(levels), input(*model.graph, "x", {"4"}), "y")->outputs[0]};
    if (levels > 20) {
      EXPECT_THAT([&] { inline_functions(model); },
                  testing::ThrowsMessage<Error>(HasSubstr("more than 1000000 nodes")));
    } else {
      inline_functions(model);
      EXPECT_EQ(model.graph->nodes().size(), 8u);
    }
  }
}

}  // namespace
}  // namespace tessera::rewrite
