#include "tessera/ir/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/ir/text.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// x → a = Neg → b = Add(a, w) → c = Mul(b, a) → y = Exp
OnnxModel example() {
  return parse_text(R"(
    g (float[n, 2] x) => (float[n, 2] y) <float[2] w = {1, 2}, int64 unused = {3}> {
      a = Neg (x)
      b = Add (a, w)
      c = Mul (b, a)
      y = Exp (c)
    })");
}

std::vector<std::string> order(const Graph& graph) {
  std::vector<std::string> names;
  for (const auto& node : graph.nodes()) names.push_back(node->output()->name);
  return names;
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(graph, finds_and_lists) {
  OnnxModel model = example();
  const Graph& graph = *model.graph;
  EXPECT_EQ(graph.find("nothing"), nullptr);
  EXPECT_THAT(graph.values_of(ValueKind::state), ElementsAre(graph.find("w")));
  EXPECT_TRUE(graph.is_output(graph.find("y")));
  EXPECT_EQ(graph.find("a")->uses.size(), 2u);
  EXPECT_EQ(graph.find("b")->producer->label(), "Add producing 'b'");
}

TEST(graph, taken_names_get_fresh_ones) {
  Graph graph;
  Value* first = graph.add_input("x", {DType::float32, Shape{}});
  EXPECT_EQ(graph.add_value("x", ValueKind::result)->name, "x_1");
  EXPECT_EQ(graph.add_value("x", ValueKind::result)->name, "x_2");
  EXPECT_NE(graph.add_value("", ValueKind::result)->name, "");
  graph.rename(first, "y");
  EXPECT_EQ(graph.find("x"), nullptr);
  EXPECT_EQ(graph.find("y"), first);
}

TEST(graph, set_input_moves_the_use) {
  OnnxModel model = example();
  Graph& graph = *model.graph;
  Node* mul = graph.find("c")->producer;
  graph.set_input(mul, 1, graph.find("x"));
  EXPECT_EQ(graph.find("a")->uses.size(), 1u);
  EXPECT_EQ(graph.find("x")->uses.size(), 2u);
  graph.set_input(mul, 3, graph.find("a"));  // operand 2 is left out
  EXPECT_EQ(mul->inputs.size(), 4u);
  EXPECT_EQ(mul->input(2), nullptr);
  graph.verify("test");
}

TEST(graph, replace_uses_covers_outputs_and_next_values) {
  OnnxModel model = parse_text("g (float[2] x) => (y) <float[2] w = {1, 2} -> y> { y = Add (x, w)\n z = Neg (y) }");
  Graph& graph = *model.graph;
  graph.replace_uses(graph.find("y"), graph.find("x"));
  EXPECT_THAT(graph.outputs, ElementsAre(graph.find("x")));
  EXPECT_EQ(graph.find("w")->next, graph.find("x"));
  EXPECT_EQ(graph.find("z")->producer->input(0), graph.find("x"));
  EXPECT_THAT(graph.find("y")->uses, IsEmpty());
  graph.verify("test");
}

TEST(graph, nodes_are_inserted_and_erased) {
  OnnxModel model = example();
  Graph& graph = *model.graph;
  Node* exp = graph.find("y")->producer;
  Node* tanh = graph.add_node("Tanh", {graph.find("c")}, {"t"}, "", exp);
  graph.set_input(exp, 0, tanh->output());
  EXPECT_THAT(order(graph), ElementsAre("a", "b", "c", "t", "y"));
  graph.verify("test");
  graph.set_input(exp, 0, graph.find("c"));
  graph.erase(tanh);
  EXPECT_EQ(graph.find("t"), nullptr);
  graph.verify("test");
  EXPECT_THROW(graph.erase(graph.find("c")->producer), Error) << "its result is used";
}

TEST(graph, erase_dead_keeps_states_and_what_they_become) {
  OnnxModel model = parse_text(R"(
    g (float[2] x) => (y) <float[2] w = {1, 2} -> w2, float[2] idle = {1, 2}, float[2] dead_constant_use = {3, 4}, int64 k = {1}> {
      y = Neg (x)
      w2 = Exp (w)
      d1 = Add (x, dead_constant_use)
      d2 = Reshape (d1, {2, 1})
    })");
  Graph& graph = *model.graph;
  graph.erase_dead();
  EXPECT_THAT(order(graph), ElementsAre("y", "w2"));
  for (const char* name : {"d1", "d2", "k"}) EXPECT_EQ(graph.find(name), nullptr) << name;
  EXPECT_THAT(graph.values_of(ValueKind::expression), IsEmpty());
  EXPECT_NE(graph.find("idle"), nullptr);
  graph.verify("test");
  graph.erase_dead(true);
  EXPECT_EQ(graph.find("idle"), nullptr);
  EXPECT_NE(graph.find("w"), nullptr);
  graph.verify("test");
}

TEST(graph, sort_puts_producers_first_and_keeps_the_rest) {
  OnnxModel model = example();
  Graph& graph = *model.graph;
  Value* late = graph.add_node("Tanh", {graph.find("x")}, {"late"})->output();
  graph.set_input(graph.find("b")->producer, 1, late);
  EXPECT_THAT(message_of([&] { graph.verify("test"); }), HasSubstr("a use comes before the definition for 'late'"));
  graph.sort();
  EXPECT_THAT(order(graph), ElementsAre("a", "late", "b", "c", "y"));
  graph.verify("test");
}

TEST(graph, sort_names_a_cycle) {
  OnnxModel model = example();
  Graph& graph = *model.graph;
  graph.find("c")->producer->name = "the mul";
  graph.set_input(graph.find("b")->producer, 1, graph.find("c"));
  std::string message = message_of([&] { graph.sort(); });
  EXPECT_THAT(message, HasSubstr("Mul 'the mul'"));
  EXPECT_THAT(message, HasSubstr("Add producing 'b'"));
  EXPECT_THAT(message, HasSubstr("cycle"));
}

TEST(graph, a_chain_of_any_length_is_sorted) {
  Graph graph;
  Value* x = graph.add_input("x", {DType::float32, Shape{}});
  Value* last = graph.add_node("Neg", {x}, {"0"})->output();
  for (int i = 1; i < 20000; ++i)  // each before its consumer's producer: the worst order
    last = graph.add_node("Neg", {last}, {std::to_string(i)}, "", graph.nodes().front().get())->output();
  graph.outputs = {last};
  graph.sort();
  graph.verify("test");
}

TEST(graph, clone_is_deep) {
  OnnxModel model = parse_text(R"(
    g (bool c, float[2] x) => (y) <float[2] w = {1, 2} -> y> {
      y = If <then_branch = t () => (a) { a = Add (x, x) }> (c)
      z = Add (y, w)
    })");
  std::map<const Value*, Value*> map;
  auto copy = model.graph->clone(&map);
  copy->verify("test");
  EXPECT_EQ(print_text(*copy), print_text(*model.graph));
  for (const auto& [from, to] : map) {
    EXPECT_EQ(from->name, to->name);
    EXPECT_NE(from, to);
    EXPECT_EQ(copy->find(from->name), to);
  }
  copy->erase(copy->find("z")->producer);
  Graph& body = **copy->find("y")->producer->get<Region>("then_branch");
  body.rename(body.find("a"), "changed");
  EXPECT_NE(model.graph->find("z"), nullptr);
  EXPECT_EQ((*model.graph->find("y")->producer->get<Region>("then_branch"))->find("changed"), nullptr);
  model.graph->verify("test");
}

TEST(Region, BelongsToItsNode) {
  auto graph = std::make_unique<Graph>();
  graph->add_input("x", {DType::float32, Shape{2}});
  Node node;
  EXPECT_TRUE(node.regions().empty());
  node.set("axis", int64_t{1});
  node.set("body", Region(std::move(graph)));
  const Node copy = node;
  ASSERT_EQ(copy.regions().size(), 1u);
  ASSERT_EQ(node.regions().size(), 1u);
  EXPECT_NE(copy.regions()[0], node.regions()[0]);
  node.regions()[0]->rename(node.regions()[0]->inputs[0], "changed");
  EXPECT_EQ(copy.regions()[0]->inputs[0]->name, "x");
}

TEST(graph, attributes) {
  Node node;
  node.set("axis", int64_t{2});
  node.set("axis", int64_t{3});
  node.set("mode", std::string("linear"));
  EXPECT_EQ(node.attributes.size(), 2u);
  EXPECT_EQ(node.get_int("axis", 0), 3);
  EXPECT_EQ(node.get_int("mode", 7), 7) << "of another type";
  EXPECT_EQ(node.get_string("none", "cubic"), "cubic");
  node.remove_attribute("axis");
  EXPECT_EQ(node.find_attribute("axis"), nullptr);
}

TEST(graph, constants) {
  Graph graph;
  EXPECT_THAT(graph.constant_int64({1, 2})->data.to_int64(), ElementsAre(1, 2));
  EXPECT_EQ(graph.constant_int64({1}, true)->rank(), 0u);
  EXPECT_THAT(graph.constant_scalar(DType::float32, 0.5)->data.as<float>(), ElementsAre(0.5f));
  EXPECT_THAT(graph.constant_scalar(DType::bfloat16, 1.0)->data.as<uint16_t>(), ElementsAre(0x3f80));
  EXPECT_THAT(graph.constant_scalar(DType::boolean, 1)->data.to_int64(), ElementsAre(1));
  EXPECT_EQ(graph.add_expression("e", {Expr::symbol("n")}, true)->rank(), 0u);
  EXPECT_THROW(graph.add_expression("e", {1, 2}, true), Error);
  graph.verify("test");
}

// Each function that changes a graph counts, and only if it does.
TEST(graph, counts_its_edits) {
  OnnxModel model = example();
  Graph& graph = *model.graph;
  graph.erase_dead();
  uint64_t before = graph.edits();
  const auto changed = [&] { return std::exchange(before, graph.edits()) != before; };
  Node* mul = graph.find("b")->producer;
  graph.erase_dead();
  graph.sort();
  graph.rename(graph.find("x"), "x");
  graph.replace_uses(graph.find("x"), graph.find("x"));
  EXPECT_FALSE(changed());
  Value* added = graph.add_value("v", ValueKind::constant);
  EXPECT_TRUE(changed());
  graph.erase(added);
  EXPECT_TRUE(changed());
  Node* node = graph.add_node("Neg", {graph.find("x")}, {"n"});
  EXPECT_TRUE(changed());
  graph.erase(node);
  EXPECT_TRUE(changed());
  graph.set_input(mul, 1, graph.find("x"));
  EXPECT_TRUE(changed());
  graph.rename(graph.find("x"), "z");
  EXPECT_TRUE(changed());
  graph.replace_uses(graph.find("a"), graph.find("z"));
  EXPECT_TRUE(changed());
  graph.erase_dead();
  EXPECT_TRUE(changed());
  graph.set_next(graph.find("w"), graph.find("w"));
  EXPECT_TRUE(changed());
}

TEST(Graph, counts_the_states_whose_next_value_a_result_is) {
  OnnxModel model = example();
  Graph& graph = *model.graph;
  Value *a = graph.find("a"), *b = graph.find("b"), *w = graph.find("w");
  Value* v = graph.add_state("v", Tensor::of<float>(DType::float32, {2}, {1, 2}));
  graph.set_next(w, b);
  graph.set_next(v, b);
  EXPECT_EQ(b->next_of, 2U);
  graph.set_next(w, a);
  graph.replace_uses(b, a);
  EXPECT_EQ(b->next_of, 0U);
  EXPECT_EQ(a->next_of, 2U);
  EXPECT_EQ(v->next, a);
  graph.erase_dead(true);
  EXPECT_EQ(graph.find("b"), nullptr);
  const auto copy = graph.clone();
  EXPECT_EQ(copy->find("a")->next_of, 2U);
  copy->verify("fold");
  graph.set_next(w, nullptr);
  EXPECT_EQ(a->next_of, 1U);
  graph.verify("fold");
}

// Each breaks one invariant of a sound graph, which verify must then find.
struct Break {
  const char* message;
  std::function<void(Graph&)> action;
};

class VerifyFinds : public testing::TestWithParam<Break> {};

TEST_P(VerifyFinds, the_broken_invariant) {
  OnnxModel model = example();
  Graph& graph = *model.graph;
  graph.verify("fold");
  GetParam().action(graph);
  std::string message = message_of([&] { graph.verify("fold"); });
  EXPECT_THAT(message, HasSubstr("[fold]"));
  EXPECT_THAT(message, HasSubstr(GetParam().message));
}

Graph other;
Value* foreign() {
  static Value* value = other.add_input("foreign", {DType::float32, Shape{2}});
  return value;
}

INSTANTIATE_TEST_SUITE_P(
    graph, VerifyFinds,
    testing::Values(
        Break{"the name is not its own for 'x'", [](Graph& g) { g.find("a")->name = "x"; }},
        Break{"the number is not its own for 'a'", [](Graph& g) { g.find("a")->number = g.find("x")->number; }},
        Break{"the number is not its own for 'a'", [](Graph& g) { g.find("a")->number = 1000; }},
        Break{"kind and producer disagree for 'a'", [](Graph& g) { g.find("a")->kind = ValueKind::input; }},
        Break{"kind and producer disagree for 'x'", [](Graph& g) { g.find("x")->kind = ValueKind::result; }},
        Break{"data and type disagree for 'w'", [](Graph& g) { g.find("w")->type.dtype = DType::float16; }},
        Break{"data and shape disagree for 'w'", [](Graph& g) { g.find("w")->type.shape = Shape{3}; }},
        Break{"data and shape disagree for 'w'", [](Graph& g) { g.find("w")->type.shape.reset(); }},
        Break{"no elements for 'e'", [](Graph& g) { g.add_expression("e", {1})->content.reset(); }},
        Break{"contents of rank above 1 for 'a'",
              [](Graph& g) {
                g.find("a")->type.shape = Shape{1, 1};
                g.find("a")->content = {1};
              }},
        Break{"contents and shape disagree for 'e'",
              [](Graph& g) {
                g.add_expression("e", {1})->content = {1, 2};
              }},
        Break{"a use comes before the definition for 'y'",
              [](Graph& g) { g.add_node("Neg", {g.find("y")}, {"z"}, "", g.nodes()[0].get()); }},
        Break{"Neg producing 'a' has an operand of another graph",
              [](Graph& g) { g.nodes()[0]->inputs.push_back(foreign()); }},
        Break{"Neg producing 'a' has a result of another graph",
              [](Graph& g) { g.nodes()[0]->outputs.push_back(foreign()); }},
        Break{"the producer is another for 'b'", [](Graph& g) { g.nodes()[0]->outputs.push_back(g.find("b")); }},
        Break{"uses are miscounted for 'x'", [](Graph& g) { g.find("x")->uses.clear(); }},
        Break{"uses are miscounted for 'x'", [](Graph& g) { g.nodes()[1]->inputs[0] = g.find("x"); }},
        Break{"a listed use is not one for 'a'", [](Graph& g) { g.find("a")->uses[0].index = 1; }},
        Break{"the states whose next value it is are miscounted for 'a'", [](Graph& g) { g.find("a")->next_of = 1; }},
        Break{"the next value is of another graph for 'w'", [](Graph& g) { g.find("w")->next = foreign(); }},
        Break{"the next value was not set by the graph for 'w'", [](Graph& g) { g.find("w")->next = g.find("a"); }},
        Break{"graph 'g' has an output of another graph", [](Graph& g) { g.outputs.push_back(foreign()); }}));

}  // namespace
}  // namespace tessera
