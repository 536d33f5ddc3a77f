#include <gmock/gmock.h>

#include "ops/one_node.h"
#include "tessera/ops/library/infer.h"

namespace tessera::ops {
namespace {

std::string content(std::string_view type, std::vector<std::vector<Expr>> operands) {
  OneNode node(type);
  for (auto& elements : operands) {
    bool scalar = elements.size() == 1;
    node.expressions(std::move(elements), scalar);
  }
  return node.content();
}

TEST(Content, ArithmeticOnExtentsStaysSymbolic) {
  EXPECT_EQ(content("Add", {{s}, {1}}), "[s + 1]");
  EXPECT_EQ(content("Sub", {{s}, {s}}), "[0]");
  EXPECT_EQ(content("Mul", {{b, 4}, {s}}), "[b*s, 4*s]");
  EXPECT_EQ(content("Neg", {{s}}), "[-s]");
  EXPECT_EQ(content("Max", {{s}, {-1}}), "[s]");
  EXPECT_EQ(content("Min", {{s}, {512}}), "[min(512, s)]");
  EXPECT_EQ(content("Pow", {{s}, {2}}), "[s*s]");
  EXPECT_EQ(content("Sign", {{s + 1, -3, 0}}), "[1, -1, 0]");
}

TEST(Content, DividesTowardsZero) {
  EXPECT_EQ(content("Div", {{64 * s}, {16}}), "[4*s]");
  EXPECT_EQ(content("Div", {{s}, {2}}), "[floordiv(s, 2)]");
  EXPECT_EQ(content("Div", {{-7}, {2}}), "[-3]");
  EXPECT_EQ(content("Div", {{0 - s}, {2}}), "[-floordiv(s, 2)]") << "floordiv alone would round downwards";
  EXPECT_EQ(content("Div", {{s}, {0 - b}}), "unknown");
  EXPECT_EQ(content("Div", {{s}, {0}}), "unknown");
  EXPECT_EQ(content("Mod", {{-7}, {4}}), "[1]") << "the divisor gives the sign";
}

// Divides as C does, for any signs.
TEST(Content, DividesWhatMayBeNegative) {
  const auto divided = [](std::string_view type) {
    OneNode node(type);
    node.expressions({s - 5}).ints({2});
    if (type == "Mod") node.set("fmod", int64_t{1});
    const std::string text = node.content();
    return Expr::parse(text.substr(1, text.size() - 2)).value();
  };
  const Expr quotient = divided("Div"), remainder = divided("Mod");
  for (int64_t size = 1; size < 12; ++size) {
    EXPECT_EQ(quotient.evaluate({{"s", size}}), (size - 5) / 2) << quotient.str();
    EXPECT_EQ(remainder.evaluate({{"s", size}}), (size - 5) % 2) << remainder.str();
  }
}

TEST(Content, ClipsBetweenTheBoundsThatAreThere) {
  OneNode node("Clip");
  node.ints({-5, 3, 9}).absent().ints({4}, true);
  EXPECT_EQ(node.content(), "[-5, 3, 4]");
}

TEST(Content, BoundsDecideComparisonsWhereTheyCan) {
  EXPECT_EQ(content("Equal", {{s, 4, 2 * s}, {-1, 4, s + s}}), "[0, 1, 1]");
  EXPECT_EQ(content("Less", {{-1, s}, {s, s}}), "[1, 0]");
  EXPECT_EQ(content("GreaterOrEqual", {{s + 1, s}, {1, s + 1}}), "[1, 0]");
  EXPECT_EQ(content("Less", {{3}, {s}}), "[min(1, max(0, s - 3))]");
}

// "The given extent, or 1 where it is -1", as exporters spell Expand's shape.
TEST(Content, WherePicksPerElement) {
  Graph graph;
  Value* given = graph.add_expression("given", {-1, s, 64});
  Node* open = graph.add_node("Equal", {given, graph.constant_int64({-1, -1, -1})}, {"open"});
  Node* chosen = graph.add_node("Where", {open->output(), graph.constant_int64({1, 1, 1}), given}, {"chosen"});
  infer_types(graph);
  EXPECT_EQ(open->output()->dtype(), DType::boolean);
  EXPECT_EQ(to_string(*chosen->output()->content), "[1, s, 64]");
}

TEST(Content, AnUndecidedChoiceIsRightForEveryExtent) {
  Graph graph;
  auto scalar = [&](Expr e) { return graph.add_expression("", {e}, true); };
  Node* is_long = graph.add_node("Greater", {scalar(s), scalar(8)}, {"long"});
  Node* choice = graph.add_node("Where", {is_long->output(), scalar(s), scalar(b)}, {"choice"});
  Node* is_five = graph.add_node("Equal", {scalar(s), scalar(5)}, {"five"});
  infer_types(graph);
  for (int64_t length = 0; length < 12; ++length) {
    std::map<std::string, int64_t, std::less<>> bound{{"s", length}, {"b", 100}};
    EXPECT_EQ(choice->output()->content->front().evaluate(bound), length > 8 ? length : 100) << length;
    EXPECT_EQ(is_five->output()->content->front().evaluate(bound), length == 5) << length;
  }
}

TEST(Content, CastsFollowIntegersAndFloatConstantsButNotStates) {
  auto cast = [](Value* value, Graph& graph, DType to) {
    Node* node = graph.add_node("Cast", {value}, {"y"});
    node->set("to", static_cast<int64_t>(to));
    infer_types(graph);
    return node->output()->content ? to_string(*node->output()->content) : "unknown";
  };
  Graph graph;
  EXPECT_EQ(cast(graph.add_expression("", {s}, true), graph, DType::int32), "[s]");
  EXPECT_EQ(cast(graph.add_expression("", {s + 1, 0}), graph, DType::boolean), "[1, 0]");
  EXPECT_EQ(cast(graph.add_expression("", {s}, true), graph, DType::float32), "unknown");
  EXPECT_EQ(cast(graph.constant_scalar(DType::float32, -2.75), graph, DType::int64), "[-2]");
  Tensor three = Tensor::of<float>(DType::float32, {1}, {3});
  EXPECT_EQ(cast(graph.add_state("w", three), graph, DType::int64), "unknown");
}

// The result of a chain of floating-point operators, written from the inside out, after a Cast to int64.
class FloatChain {
 public:
  Value* of(const Expr& extent) {
    return node("Cast", {graph_.add_expression("", {extent}, true)},
                {{"to", static_cast<int64_t>(DType::float32), ""}});
  }
  Value* number(double x) { return graph_.constant_scalar(DType::float32, x); }
  Value* node(std::string_view type, std::vector<Value*> operands, std::vector<Attribute> attributes = {}) {
    Node* added = graph_.add_node(type, std::move(operands), {""});
    added->attributes = std::move(attributes);
    return added->output();
  }
  std::string cast(Value* value) {
    Value* whole = node("Cast", {value}, {{"to", static_cast<int64_t>(DType::int64), ""}});
    infer_types(graph_);
    return whole->content ? to_string(*whole->content) : "unknown";
  }

 private:
  Graph graph_;
};

TEST(Content, FloatsThatFollowFromExtentsAreExpressionsWhereTheyBecomeIntegers) {
  FloatChain f;
  EXPECT_EQ(f.cast(f.of(s)), "[s]");
  EXPECT_EQ(f.cast(f.node("Mul", {f.of(s), f.number(2)})), "[2*s]");
  EXPECT_EQ(f.cast(f.node("Add", {f.node("Mul", {f.of(s), f.number(0.5)}), f.number(0.5)})), "[floordiv(s + 1, 2)]");
  EXPECT_EQ(f.cast(f.node("Floor", {f.node("Div", {f.of(s), f.number(3)})})), "[floordiv(s, 3)]");
  EXPECT_EQ(f.cast(f.node("Mul", {f.node("Ceil", {f.node("Div", {f.of(s), f.number(32)})}), f.number(32)})),
            "[32*floordiv(s + 31, 32)]");
  EXPECT_EQ(f.cast(f.node("Div", {f.of(4 * s), f.of(s)})), "[4]");
}

TEST(Content, FloatsThatAreRoundedAreNotFollowedFurther) {
  FloatChain f;
  EXPECT_EQ(f.cast(f.node("Mul", {f.node("Div", {f.of(s), f.number(3)}), f.number(3)})), "unknown");
  EXPECT_EQ(f.cast(f.node("Mul", {f.of(s), f.number(0.3)})), "unknown") << "0.3 is not a float";
  EXPECT_EQ(f.cast(f.node("Sub", {f.of(s), f.node("Mul", {f.of(b), f.number(0.5)})})), "unknown")
      << "the sign is not known";
  EXPECT_EQ(f.cast(f.node("Sqrt", {f.of(s)})), "unknown");
}

TEST(Content, LongAndHighRankedTensorsAreNotFollowed) {
  Graph graph;
  EXPECT_TRUE(content_of(graph.constant_int64(std::vector<int64_t>(64, 7))).has_value());
  EXPECT_FALSE(content_of(graph.constant_int64(std::vector<int64_t>(65, 7))).has_value());
  EXPECT_FALSE(content_of(graph.add_constant("m", Tensor::of<int64_t>(DType::int64, {1, 1}, {7}))).has_value());
  EXPECT_FALSE(content_of(nullptr).has_value());
}

// x.view(x.shape[0], -1, heads, x.shape[2] // heads), as it arrives.
TEST(Content, AnExportedShapeChainBecomesExpressions) {
  Graph graph;
  Value* x = graph.add_input("x", {DType::float32, Shape{b, s, 192}});
  auto extent = [&](int64_t d) {
    Node* shape = graph.add_node("Shape", {x}, {""});
    shape->set("start", d);
    shape->set("end", d + 1);
    return shape->output();
  };
  Node* width = graph.add_node("Div", {extent(2), graph.constant_int64({6})}, {""});
  Node* target = graph.add_node(
      "Concat", {extent(0), graph.constant_int64({-1}), graph.constant_int64({6}), width->output()}, {""});
  target->set("axis", int64_t{0});
  Node* view = graph.add_node("Reshape", {x, target->output()}, {"view"});
  infer_types(graph);
  EXPECT_EQ(to_string(view->output()->shape()), "[b, s, 6, 32]");
  EXPECT_EQ(op_of(*view).rule(*view).str(), "a b (c d), 1 -> a b c d");
}

}  // namespace
}  // namespace tessera::ops
