// A computation has one number in any spelling, and every change of an answer changes the number.
#include "tessera/proof/meaning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tessera/ir/text.h"
#include "tessera/ops/op.h"

namespace tessera::proof {
namespace {

using testing::HasSubstr;

constexpr std::string_view kModel = R"(<ir_version: 10, opset_import: ["" : 24, "tessera.comm" : 1]>
  m (float[4, 8] x) => (float[4, 8] y) <float[8, 6] w, float[8, 6] u, float[6, 8] v, float half = {0.5}> {
    h = MatMul (x, w)
    r = Relu (h)
    t = Tanh (h)
    s = Add (r, t)
    d = Sub (s, h)
    e = LeakyRelu <alpha = 0.5> (d)
    f = Mul (e, half)
    p = MatMul (f, v)
    y = tessera.comm.AllReduce <axes = ["tp"], value = "y", reduction = "sum"> (p)
  })";

spmd::Program program_of(std::string_view text) {
  spmd::Program program;
  program.mesh = Mesh::parse("tp=2");
  program.graph = std::move(parse_text(text).graph);
  for (Value* input : program.graph->inputs) program.inputs.push_back({input->name, input});
  for (Value* output : program.graph->outputs) program.outputs.push_back({output->name, output});
  for (const auto& node : program.graph->nodes())
    if (node->domain.empty())
      ops::op_of(*node).infer(*node);
    else
      node->output()->type = node->input(0)->type;
  return program;
}

std::string with(std::string text, std::string_view was, std::string_view now) {
  const size_t at = text.find(was);
  EXPECT_NE(at, std::string::npos) << was;
  return text.replace(at, was.size(), now);
}

struct Spelling {
  const char* name;
  const char* was;
  const char* now;
  friend std::ostream& operator<<(std::ostream& stream, const Spelling& spelling) { return stream << spelling.name; }
};

class SameMeaning : public testing::TestWithParam<Spelling> {};

TEST_P(SameMeaning, HasTheSameNumber) {
  const Meaning was = meaning_of(program_of(kModel));
  const spmd::Program now = program_of(with(std::string(kModel), GetParam().was, GetParam().now));
  EXPECT_EQ(meaning_of(now).whole, was.whole);
  EXPECT_FALSE(departure(now, was).has_value());
}

const Spelling kSame[] = {
    {"names", "r = Relu (h)\n    t = Tanh (h)\n    s = Add (r, t)",
     "[a] one = Relu (h)\n    [b] two = Tanh (h)\n    s = Add (one, two)"},
    {"order_of_nodes", "r = Relu (h)\n    t = Tanh (h)", "t = Tanh (h)\n    r = Relu (h)"},
    {"order_of_addends", "Add (r, t)", "Add (t, r)"},
    {"nodes_twice", "t = Tanh (h)", "h2 = MatMul (x, w)\n    t = Tanh (h2)"},
    {"copies", "t = Tanh (h)", "h2 = Identity (h)\n    t = Tanh (h2)"},
};
INSTANTIATE_TEST_SUITE_P(Of, SameMeaning, testing::ValuesIn(kSame),
                         [](const auto& info) { return std::string(info.param.name); });

class OtherMeaning : public testing::TestWithParam<Spelling> {};

TEST_P(OtherMeaning, HasAnotherNumber) {
  const Meaning was = meaning_of(program_of(kModel));
  const auto found = departure(program_of(with(std::string(kModel), GetParam().was, GetParam().now)), was);
  ASSERT_TRUE(found.has_value());
  EXPECT_THAT(found->why, HasSubstr("not proved"));
}

constexpr const char* kReduce = "y = tessera.comm.AllReduce <axes = [\"tp\"], value = \"y\", reduction = \"sum\"> (p)";
const Spelling kOther[] = {
    {"a_communication_dropped", kReduce, "y = Identity (p)"},
    {"a_communication_done_twice", kReduce,
     "q = tessera.comm.AllReduce <axes = [\"tp\"], value = \"y\", reduction = \"sum\"> (p)\n"
     "y = tessera.comm.AllReduce <axes = [\"tp\"], value = \"y\", reduction = \"sum\"> (q)"},
    {"a_communication_of_which_nothing_is_used", kReduce,
     "z = tessera.comm.AllReduce <axes = [\"tp\"], value = \"s\", reduction = \"sum\"> (s)\n"
     "y = tessera.comm.AllReduce <axes = [\"tp\"], value = \"y\", reduction = \"sum\"> (p)"},
    {"another_reduction", "\"sum\"", "\"max\""},
    {"another_operator", "Tanh", "Sigmoid"},
    {"another_operand", "Tanh (h)", "Tanh (r)"},
    {"another_state", "MatMul (x, w)", "MatMul (x, u)"},
    {"operands_the_other_way_round", "Sub (s, h)", "Sub (h, s)"},
    {"an_attribute", "alpha = 0.5", "alpha = 0.25"},
    {"a_constant", "{0.5}", "{0.25}"},
};
INSTANTIATE_TEST_SUITE_P(Of, OtherMeaning, testing::ValuesIn(kOther),
                         [](const auto& info) { return std::string(info.param.name); });

// Offsets are expressions where one program serves all ranks.
TEST(Meaning, HasWhatSteersANodeOnItsRank) {
  auto cut = [](const Expr& start) {
    spmd::Program program = program_of(kModel);
    Graph& graph = *program.graph;
    Value* x = program.inputs[0].value;
    Node* slice = graph.add_node("Slice",
                                 {x, graph.add_expression("start", {start}), graph.add_expression("end", {start + 2}),
                                  graph.constant_int64({0})},
                                 {"cut"});
    slice->outputs[0]->type = {DType::float32, Shape{2, 8}};
    program.outputs.push_back({"cut", slice->outputs[0]});
    return meaning_of(program).whole;
  };
  const Expr tp = Expr::axis_index("tp");
  EXPECT_EQ(cut(2 * tp), cut(tp + tp));
  EXPECT_NE(cut(2 * tp), cut(2 - 2 * tp));
  EXPECT_NE(cut(2 * tp), cut(2 * Expr::axis_index("dp")));
  EXPECT_NE(cut(2 * tp), cut(2 * tp - 1));
}

// Two that state the same find the others' in turn.
TEST(Meaning, TellsAlikeCommunicationsByTheirPlace) {
  auto reduced = [](const char* first, const char* second) {
    return meaning_of(program_of(with(std::string(kModel), kReduce,
                                      std::string("a = tessera.comm.AllReduce <axes = [\"tp\"]> (") + first +
                                          ")\n b = tessera.comm.AllReduce <axes = [\"tp\"]> (" + second +
                                          ")\n c = Add (r, t)\n y = MatMul (c, v)")));
  };
  EXPECT_EQ(reduced("r", "t"), reduced("r", "t"));
  EXPECT_NE(reduced("r", "t").whole, reduced("t", "r").whole);
}

TEST(Meaning, NamesTheFirstNodeThatDoesSomethingNew) {
  const Meaning was = meaning_of(program_of(kModel));
  const auto found = departure(program_of(with(std::string(kModel), "Tanh", "Sigmoid")), was);
  ASSERT_TRUE(found.has_value());
  EXPECT_THAT(found->node, HasSubstr("Sigmoid"));
  EXPECT_THAT(found->why, HasSubstr("not proved from here on: Sigmoid producing 't'"));
}

// The only element of an operand, over axis indices and sizes, counts by its value on each rank.
Number number_with(const Expr& element, std::string_view mesh) {
  spmd::Program program = program_of(kModel);
  program.mesh = Mesh::parse(mesh);
  Graph& graph = *program.graph;
  Node* node = graph.add_node("Slice", {graph.find("r"), graph.add_expression("at", {element})}, {"cut"});
  node->output()->type = graph.find("r")->type;
  graph.outputs.push_back(node->output());
  program.outputs.push_back({"cut", node->output()});
  return meaning_of(program).whole;
}

TEST(MeaningOfExpressions, IsWhatTheyAreOnEachRank) {
  const Expr dp = Expr::symbol("@dp"), tp = Expr::symbol("@tp"), n = Expr::symbol("n");
  for (const char* mesh : {"dp=32,tp=2", "dp=128,tp=2"}) {
    EXPECT_NE(number_with(4 * floordiv(dp, 16), mesh), number_with(0, mesh)) << mesh;
    EXPECT_NE(number_with(min(dp, 20), mesh), number_with(dp, mesh)) << mesh;
    EXPECT_NE(number_with(tp, mesh), number_with(min(dp, 1), mesh)) << mesh;
  }
  EXPECT_NE(number_with(tp, "dp=2,tp=2"), number_with(dp, "dp=2,tp=2"));
  EXPECT_NE(number_with(min(n, 8192), "tp=2"), number_with(n, "tp=2"));
  EXPECT_EQ(number_with(floordiv(n, 2) + mod(n, 2), "tp=2"), number_with(floordiv(n + 1, 2), "tp=2"));
  EXPECT_EQ(number_with(min(dp, 40), "dp=32,tp=2"), number_with(dp, "dp=32,tp=2")) << "there is no index 40";
}

}  // namespace
}  // namespace tessera::proof
