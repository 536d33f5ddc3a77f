// Expressions as int64 nodes: the nodes compute the expression's value, and read back as the expression.
#include "tessera/program_io/expression_nodes.h"

#include <gtest/gtest.h>

#include <random>

#include "tessera/spmd/program.h"

namespace tessera::program_io {
namespace {

using Bindings = std::map<std::string, int64_t, std::less<>>;
using Elements = std::vector<int64_t>;

int64_t apply(const std::string& type, int64_t a, int64_t b) {
  if (type == "Add") return a + b;
  if (type == "Sub") return a - b;
  if (type == "Mul") return a * b;
  if (type == "Div") return a / b;  // ONNX: towards zero
  if (type == "Min") return std::min(a, b);
  if (type == "Max") return std::max(a, b);
  EXPECT_EQ(type, "Mod");
  return ((a % b) + b) % b;  // ONNX, fmod=0: the divisor's sign; divisors here are positive
}

// The values of the nodes according to ONNX.
Elements computed(const Graph& graph, const Value* wanted, const Bindings& bindings) {
  std::map<const Value*, Elements> known;
  for (const Value* input : graph.inputs) known[input] = {bindings.at(input->name.substr(kSymbolPrefix.size()))};
  for (const Value* constant : graph.values_of(ValueKind::constant)) known[constant] = constant->data.to_int64();
  for (const auto& node : graph.nodes()) {
    Elements& result = known[node->outputs[0]];
    if (node->is("AxisIndex", spmd::kCommDomain)) {
      result = {bindings.at("@" + node->get_string("axis", ""))};
    } else if (node->is("Unsqueeze") || node->is("Squeeze") || node->is("Identity")) {
      result = known.at(node->inputs[0]);
    } else if (node->is("Concat")) {
      for (const Value* piece : node->inputs)
        result.insert(result.end(), known.at(piece).begin(), known.at(piece).end());
    } else {
      result = {apply(node->op_type, known.at(node->inputs[0])[0], known.at(node->inputs[1])[0])};
    }
  }
  return known.at(wanted);
}

ExpressionNodes::AxisIndex index_node(Graph& graph) {
  return [&graph](const std::string& axis) {
    Node* node = graph.add_node("AxisIndex", {}, {"@" + axis}, spmd::kCommDomain);
    node->set("axis", axis);
    node->outputs[0]->type = {DType::int64, Shape{}};
    return node->outputs[0];
  };
}

Expr parse(const std::string& text) {
  auto expr = Expr::parse(text);
  EXPECT_TRUE(expr) << text;
  return expr.value_or(0);
}

void expect_right(const std::vector<Expr>& elements, bool scalar, const std::vector<Bindings>& bindings) {
  SCOPED_TRACE(to_string(elements));
  Graph graph;
  Value* value = ExpressionNodes(graph, index_node(graph)).value_of("shape", elements, scalar, DType::int64);
  graph.outputs = {graph.add_node("Identity", {value}, {"y"})->outputs[0]};
  graph.outputs[0]->type = value->type;
  graph.verify("test");
  for (const Bindings& at : bindings) {
    Elements expected;
    for (const Expr& element : elements) expected.push_back(element.evaluate(at));
    EXPECT_EQ(computed(graph, value, at), expected);
  }
  fold_expression_nodes(graph, Mesh::parse("dp=64,tp=64"));
  const Value* operand = graph.outputs[0]->producer->input(0);
  ASSERT_EQ(operand->kind, ValueKind::expression);
  EXPECT_EQ(graph.nodes().size(), 1u);
  EXPECT_EQ(operand->rank(), scalar ? 0u : 1u);
  ASSERT_EQ(operand->content->size(), elements.size());
  for (const Bindings& at : bindings)
    for (size_t i = 0; i < elements.size(); ++i)
      EXPECT_EQ((*operand->content)[i].evaluate(at), elements[i].evaluate(at)) << (*operand->content)[i].str();
}

const std::vector<Bindings> kBindings = {{{"a", 0}, {"b", 1}, {"@tp", 0}},
                                         {{"a", 5}, {"b", 3}, {"@tp", 1}},
                                         {{"a", 16}, {"b", 7}, {"@tp", 2}},
                                         {{"a", 129}, {"b", 64}, {"@tp", 3}}};

TEST(ExpressionNodes, sums_of_products) {
  expect_right({parse("2*a*b + 3*a - b + 7"), 64, parse("a*a")}, false, kBindings);
}

TEST(ExpressionNodes, scalar) {
  expect_right({parse("a + 1")}, true, kBindings);
}

TEST(ExpressionNodes, balanced_split_of_a_rank) {
  expect_right({parse("floordiv(a - @tp + 3, 4)"), parse("@tp*floordiv(a, 4) + min(@tp, mod(a, 4))")}, false,
               kBindings);
}

TEST(ExpressionNodes, quotient_of_what_may_be_negative_is_rounded_down) {
  expect_right({parse("floordiv(a - 9, 4)"), parse("floordiv(3 - 2*b, 5)")}, false, kBindings);
}

TEST(ExpressionNodes, minimum_and_maximum) {
  expect_right({parse("min(a, 64)"), parse("max(b - a, 0)"), parse("mod(a - b, 8)")}, false, kBindings);
}

TEST(ExpressionNodes, equal_subexpressions_share_nodes) {
  Graph graph;
  ExpressionNodes nodes(graph, index_node(graph));
  Expr local = parse("floordiv(a + 3, 4)");
  nodes.value_of("x", {local, 64}, false, DType::int64);
  size_t before = graph.nodes().size();
  nodes.value_of("y", {local, 32}, false, DType::int64);
  EXPECT_EQ(graph.nodes().size(), before + 1) << "only another Concat";
  EXPECT_EQ(graph.inputs.size(), 1u);
}

TEST(ExpressionNodes, constants_are_initializers_of_their_type) {
  Graph graph;
  const Value* value = ExpressionNodes(graph, index_node(graph)).value_of("x", {4, 5}, false, DType::int32);
  EXPECT_EQ(value->kind, ValueKind::constant);
  EXPECT_EQ(value->dtype(), DType::int32);
  EXPECT_TRUE(graph.nodes().empty());
}

Expr random_expression(std::mt19937& random, int depth) {
  auto pick = [&](int count) { return static_cast<int>(random() % count); };
  if (depth == 0) return std::vector<Expr>{Expr::symbol("a"), Expr::symbol("b"), Expr::axis_index("tp"), 7}[pick(4)];
  Expr x = random_expression(random, depth - 1), y = random_expression(random, depth - 1);
  int divisor = 1 + pick(9);
  switch (pick(7)) {
    case 0:
      return x + y;
    case 1:
      return x - y;
    case 2:
      return x * y;
    case 3:
      return floordiv(x, divisor);
    case 4:
      return mod(x, divisor);
    case 5:
      return min(x, y);
    default:
      return max(x, y);
  }
}

TEST(ExpressionNodes, random_expressions) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 300; ++i) {
    std::vector<Expr> elements;
    for (int e = 0; e < 3; ++e) elements.push_back(random_expression(random, 3));
    if (constants_of(elements)) continue;
    expect_right(elements, false, kBindings);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace tessera::program_io
