#include "tessera/ir/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tessera/base/error.h"

namespace tessera {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Reads, checks, and prints again with types.
std::string round_trip(std::string_view text, TextOptions options = {}) {
  OnnxModel model = parse_text(text);
  model.graph->verify("test");
  options.types = true;
  return print_text(model, options);
}

void expect_unchanged(std::string_view text, const TextOptions& options = {}) {
  EXPECT_EQ(round_trip(text, options), text);
}

TEST(text, reads_a_model_into_the_ir) {
  OnnxModel model = parse_text(R"(
    <ir_version: 9, opset_import: ["" : 20, "com.microsoft" : 1]>
    mlp (float[batch, 128] x, int64 n) => (float[batch, 2] y) <float[128, 2] w, float[2] b = {1, 2.5}, float h> {
      # the only layer
      [first] h = MatMul (x, w)
      y = com.microsoft.BiasGelu:fast <axis = -1, alpha = 0.5, mode = "tanh", axes = [1, 2]> (h, b)
    })");
  EXPECT_EQ(model.ir_version, 9);
  EXPECT_EQ(model.opset(), 20);
  const Graph& graph = *model.graph;
  EXPECT_EQ(graph.name, "mlp");
  EXPECT_EQ(to_string(graph.inputs[0]->shape()), "[batch, 128]");
  EXPECT_EQ(graph.inputs[1]->type, (TensorType{DType::int64, Shape{}}));
  EXPECT_EQ(graph.find("w")->kind, ValueKind::state);
  EXPECT_EQ(graph.find("w")->data.bytes, 128u * 2 * 4);
  EXPECT_THAT(graph.find("b")->data.as<float>(), ElementsAre(1, 2.5));
  EXPECT_EQ(graph.find("h")->type, (TensorType{DType::float32, Shape{}}));
  const Node& node = *graph.nodes()[1];
  EXPECT_EQ(graph.nodes()[0]->name, "first");
  EXPECT_EQ(node.domain, "com.microsoft");
  EXPECT_EQ(node.op_type, "BiasGelu");
  EXPECT_EQ(node.overload, "fast");
  EXPECT_EQ(node.get_int("axis", 0), -1);
  EXPECT_EQ(node.get_float("alpha", 0), 0.5f);
  EXPECT_EQ(node.get_string("mode", ""), "tanh");
  EXPECT_THAT(node.get_ints("axes"), ElementsAre(1, 2));
  EXPECT_EQ(node.output(), graph.outputs[0]);
}

TEST(text, prints_what_it_reads) {
  expect_unchanged(R"(<ir_version: 10, opset_import: ["" : 20]>
g (float[batch, 4] x, int64 n, float[] any, double[2] d) => (float[batch, 4] z, bool y) {
  [name] z = Add (x, x)
  y = And ("", n, "")
}
)");
}

TEST(text, a_header_keeps_its_fields) {
  expect_unchanged(R"(<
  ir_version: 10,
  opset_import: ["" : 20, "local" : 1],
  producer_name: "say \"hi\"",
  producer_version: "2",
  domain: "d",
  model_version: 300,
  doc_string: "two
lines",
  metadata_props: ["a": "b", "c\\": ""]
>
g (float x) => (float x) {
}
)");
}

TEST(text, names_that_are_not_plain_are_quoted) {
  expect_unchanged(R"(<ir_version: 10, opset_import: ["" : 20]>
"main graph" (float["a b", "sequence + 1"] "float", float[n] "0") => (float "/m/Out\"put_0") <float "onnx::MatMul_417"> {
  ["/m/Add"] "onnx::MatMul_417" = "odd domain"."odd op" <"odd name" = 1> ("float", "0")
  "/m/Out\"put_0" = Neg ("onnx::MatMul_417")
}
)");
}

TEST(text, dimensions_are_expressions) {
  OnnxModel model = parse_text(R"(g (float["s + 1", "a b", ?, "2*s", 3] x) => (x) {})");
  const Shape& shape = model.graph->inputs[0]->shape();
  EXPECT_EQ(shape[0], Expr::symbol("s") + 1);
  EXPECT_EQ(shape[1].as_symbol(), "a b");
  EXPECT_EQ(shape[2].as_symbol(), "x_dim_2");
  EXPECT_EQ(shape[3], 2 * Expr::symbol("s"));
  EXPECT_TRUE(shape[4].is(3));
}

TEST(text, elements_of_every_type) {
  expect_unchanged(R"(<ir_version: 10, opset_import: ["" : 20]>
g () => () <
  float[7] f = {1.0, -0.0, 0.1, 1e-45, inf, -inf, nan},
  double[2] d = {1e+300, 0.30000000000000004},
  constant float16[2] h = {15360, 49152},
  bfloat16[2] b = {16256, 32767},
  int8[2] i8 = {-128, 127},
  uint8[1] u8 = {255},
  int16[1] i16 = {-32768},
  uint16[1] u16 = {65535},
  int32[1] i32 = {-2147483648},
  uint32[1] u32 = {4294967295},
  int64[2] i64 = {-9223372036854775808, 9223372036854775807},
  uint64[1] u64 = {18446744073709551615},
  bool[2] t = {1, 0},
  float scalar = {2.0},
  float[0] empty = {},
  int64[2, 2] m = {1, 2, 3, 4}
> {
}
)");
}

TEST(text, sixteen_bit_floats_may_be_given_by_value) {
  OnnxModel model = parse_text(R"(g () => () <
    float16[8] h = {1.0, -2.0, 0.1, 65504.0, 65520.0, 5.9604645e-08, 2.9802322e-08, -inf},
    bfloat16[4] b = {1.0, 1.00390625, 1.01171875, nan}, bool[2] t = {true, false}> {})");
  EXPECT_THAT(model.graph->find("h")->data.as<uint16_t>(),
              ElementsAre(0x3c00, 0xc000, 0x2e66, 0x7bff, 0x7c00, 0x0001, 0x0000, 0xfc00));
  EXPECT_THAT(model.graph->find("b")->data.as<uint16_t>(), ElementsAre(0x3f80, 0x3f80, 0x3f82, 0x7fc0));
  EXPECT_THAT(model.graph->find("t")->data.as<uint8_t>(), ElementsAre(1, 0));
}

TEST(text, large_tensors_are_declared_by_type) {
  constexpr std::string_view kWhole = R"(<ir_version: 10, opset_import: ["" : 20]>
g () => (y) <float[3] w = {1.0, 2.0, 3.0}> {
  y = Constant <value = int64[3] {4, 5, 6}> ()
}
)";
  constexpr std::string_view kElided = R"(<ir_version: 10, opset_import: ["" : 20]>
g () => (y) <float[3] w> {
  y = Constant <value = int64[3] {...}> ()
}
)";
  expect_unchanged(kWhole, {.elide_above = 3});
  EXPECT_EQ(round_trip(kWhole, {.elide_above = 2}), kElided);
  expect_unchanged(kElided, {.elide_above = 2});
  EXPECT_THAT(parse_text(kElided).graph->find("w")->data.as<float>(), ElementsAre(0, 0, 0));
  // No literals: by type only, of any size.
  expect_unchanged("<ir_version: 10, opset_import: [\"\" : 20]>\ng () => () <float8e4m3fn q, int4[2] p> {\n}\n");
}

TEST(text, attributes_of_every_type) {
  expect_unchanged(R"(<ir_version: 10, opset_import: ["" : 20]>
g (float x) => (y) {
  y = A <i = -3, f = 1.0, g: float = inf, h = 1e-07, s = "a\"b\\", is = [1, -2], fs = [1.0, 2.5]> (x)
  z = B <fn: floats = [nan, 1.0], ss = ["a", ""], t = float[2, 1] {1.0, 2.0}, scalar = int64 {7}> (x)
  w = C <ei: ints = [], ef: floats = [], es: strings = [], et = float[0] {}> (x)
}
)");
  // The forms that onnx.printer writes.
  OnnxModel model = parse_text(R"(g (float x) => (y) {
    y = A (x) <i: int = 1, f: float = 1, s: string = "a", fs: floats = [1, 2], t: tensor = float[1] {1}>
  })");
  const Node& node = *model.graph->nodes()[0];
  EXPECT_EQ(node.get_float("f", 0), 1.0f);
  EXPECT_THAT(*node.get<std::vector<float>>("fs"), ElementsAre(1, 2));
  EXPECT_THAT(node.get<Tensor>("t")->as<float>(), ElementsAre(1));
}

TEST(text, nested_graphs_capture_outer_values) {
  constexpr std::string_view kText = R"(<ir_version: 10, opset_import: ["" : 20]>
g (bool c, float[n] x) => (float[n] y) {
  h = Neg (x)
  y = If <then_branch = then () => (float[n] a) {
    a = Add (h, x)
  }, else_branch: graph = "else graph" () => (b) {
    b = If <then_branch = inner () => (d) {
      d = Neg (h)
    }> (c)
  }> (c)
}
)";
  TextOptions options;
  OnnxModel model = parse_text(kText);
  const Graph& body = **model.graph->find("y")->producer->get<Region>("then_branch");
  EXPECT_TRUE(body.inputs.empty());
  EXPECT_EQ(body.find("x")->kind, ValueKind::input);
  EXPECT_EQ(body.find("x")->type, model.graph->find("x")->type);
  body.verify("test");
  const Node& branches = *model.graph->find("y")->producer;
  EXPECT_EQ(branches.operand_count(), 1u);
  EXPECT_THAT(branches.captures, testing::ElementsAre("h", "x", "c")) << "what both branches take from around them";
  for (size_t c = 0; c < branches.captures.size(); ++c)
    EXPECT_EQ(branches.inputs[1 + c], model.graph->find(branches.captures[c]));
  std::string printed = print_text(model);
  EXPECT_EQ(print_text(parse_text(printed)), printed);
  EXPECT_THAT(printed, HasSubstr("then_branch = then () => (float[n] a)"));
  EXPECT_THAT(printed, HasSubstr("else_branch: graph = \"else graph\" () => (b)"));
}

TEST(text, functions_and_attribute_references) {
  expect_unchanged(R"(<ir_version: 10, opset_import: ["" : 20, "local" : 1]>
g (float x) => (y) {
  y = local.f <alpha = 2.0> (x, x)
}
<domain: "local", opset_import: ["" : 20]>
f <alpha, beta: float = 1.0, axes: ints = [1]> (a, b) => (c) {
  c = Gemm <alpha: float = @alpha, "be ta": float = @beta> (a, b)
}
<domain: "local", overload: "two", opset_import: ["" : 20]>
f (a) => (a) {
}
)");
  OnnxModel model = parse_text("g () => () {} <domain: \"l\"> f <k> (a) => (b) { b = Neg <j = @k> (a) }");
  const auto* reference = model.functions[0].body->nodes()[0]->get<AttributeReference>("j");
  ASSERT_NE(reference, nullptr);
  EXPECT_EQ(reference->name, "k");
}

TEST(text, expressions_stand_in_their_operands_place) {
  constexpr std::string_view kText = R"(<ir_version: 10, opset_import: ["" : 20]>
g (float[batch, 6] x) => (z, int64[1] s) <expression int64[1] s = {batch}> {
  y = Reshape (x, {batch, 32*floordiv(-@tp + 7, 2)})
  z = Expand (y, {= batch*sequence + 1})
  w = Expand (y, {"odd name", 3})
  v = Expand (y, {})
}
)";
  expect_unchanged(kText);
  OnnxModel model = parse_text(kText);
  const Value* shape = model.graph->find("y")->producer->input(1);
  EXPECT_EQ(shape->kind, ValueKind::expression);
  EXPECT_EQ(shape->rank(), 1u);
  EXPECT_EQ((*shape->content)[1], 32 * floordiv(7 - Expr::axis_index("tp"), 2));
  EXPECT_EQ(model.graph->find("z")->producer->input(1)->rank(), 0u);
}

TEST(text, equal_expressions_are_one_value) {
  OnnxModel model = parse_text("g (float[n] x) => (z) { y = Expand (x, {n, 1})\n z = Expand (y, {n, 1}) }");
  EXPECT_EQ(model.graph->values_of(ValueKind::expression).size(), 1u);
}

TEST(text, states_and_their_next_values) {
  constexpr std::string_view kText = R"(<ir_version: 10, opset_import: ["" : 20]>
step (float[2] g) => () <
  float[2] w = {1.0, 2.0} -> w_next,
  state int64 count = {0} -> count_next,
  constant float[2] rate = {0.5, 0.25},
  int64 one = {1}
> {
  d = Mul (g, rate)
  w_next = Sub (w, d)
  count_next = Add (count, one)
}
)";
  expect_unchanged(kText);
  OnnxModel model = parse_text(kText);
  EXPECT_EQ(model.graph->find("w")->next, model.graph->find("w_next"));
  EXPECT_EQ(model.graph->find("count")->kind, ValueKind::state);
  EXPECT_EQ(model.graph->find("rate")->kind, ValueKind::constant);
}

TEST(text, pieces_of_parameters) {
  constexpr std::string_view kText = R"(<ir_version: 10, opset_import: ["" : 20]>
g (float[2] x) => (y) <
  float[2] "w.1" = {1.0, 2.0} -> w_next from w[8] at [6],
  float[4, 8] "layer.0" from "a layer"[4, 24] at [0, 16],
  state float s = {0.0} from t[] at []
> {
  y = Add (x, "w.1")
  w_next = Mul (x, "w.1")
}
)";
  expect_unchanged(kText);
  OnnxModel model = parse_text(kText);
  EXPECT_EQ(model.graph->find("w.1")->origin, (StateOrigin{"w", {8}, {6}}));
  EXPECT_EQ(model.graph->find("layer.0")->origin, (StateOrigin{"a layer", {4, 24}, {0, 16}}));
  EXPECT_EQ(model.clone().graph->find("w.1")->origin, (StateOrigin{"w", {8}, {6}}));
}

TEST(text, an_initializer_that_is_an_input_too_is_a_state) {
  for (const char* text : {"g (float[2] x, float[2] w) => (y) <float[2] w = {1, 2}> { y = Add (x, w) }",
                           "g (float[2] x, float[2] w = {1, 2}) => (y) { y = Add (x, w) }"}) {
    OnnxModel model = parse_text(text);
    EXPECT_EQ(model.graph->inputs.size(), 1u);
    EXPECT_THAT(model.graph->find("w")->data.as<float>(), ElementsAre(1, 2));
  }
}

TEST(text, results_without_names) {
  expect_unchanged(R"(<ir_version: 10, opset_import: ["" : 20]>
g (float x) => (y) {
  "", y = TopK (x)
  = tessera.comm.Send (y)
}
)");
}

TEST(text, annotations_become_comments) {
  OnnxModel model = parse_text("g (float[4] x) => (z) <float[9] w, int64 k> { y = Add (x, w)\n z, t = Split (y, k) }");
  TextOptions options;
  options.annotate = [](const Value& value) { return value.name == "k" ? "" : "[" + value.name + "]"; };
  std::string text = print_text(*model.graph, options);
  EXPECT_EQ(text, R"(g (
  float[4] x  # [x]
) => (z) <
  float[9] w,  # [w]
  int64 k = {0}
> {
  y = Add (x, w)  # [y]
  z, t = Split (y, k)  # [z]; [t]
}
)");
  EXPECT_THAT(print_text(parse_text(text)), Not(HasSubstr("#")));
}

TEST(text, attributes_kept_as_protobuf_are_named_in_a_comment) {
  OnnxModel model = parse_text("g (float x) => (y) { y = Foo <a = 1> (x) }");
  model.graph->nodes()[0]->set("b", OpaqueAttribute{"bytes"});
  EXPECT_THAT(print_text(model), HasSubstr("y = Foo <a = 1> (x)  # attribute 'b' is not shown\n"));
}

struct Wrong {
  const char* text;
  const char* message;
};

class TextErrors : public testing::TestWithParam<Wrong> {};

TEST_P(TextErrors, name_the_place_and_what_was_expected) {
  try {
    parse_text(GetParam().text);
    FAIL() << "accepted: " << GetParam().text;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    EXPECT_THAT(error.what(), HasSubstr("[text] line "));
    EXPECT_THAT(error.what(), HasSubstr(GetParam().message));
  }
}

INSTANTIATE_TEST_SUITE_P(
    syntax, TextErrors,
    testing::Values(Wrong{"", "line 1, column 1: expected the graph's name, found the end"},
                    Wrong{"g (float x) => (y) {\n  y = Neg (x\n}", "line 3, column 1: expected ',' or ')', found '}'"},
                    Wrong{"g (float x) => (y) {\n  y Neg (x)\n}", "line 2, column 5: expected '=', found 'Neg'"},
                    Wrong{"g (float x) (y)", "expected '=>'"},
                    Wrong{"g (float x) => (y) <float[2] w from v[8]> { y = Neg (x) }", "expected 'at'"},
                    Wrong{"g (float x) => (y) <float[2] w from v[8] at [7]> { y = Neg (x) }",
                          "'w' is not a piece of 'v' of these extents"},
                    Wrong{"g (float x) => (y) <float[2] w from v[8, 1] at [0, 0]> { y = Neg (x) }",
                          "'w' is not a piece of 'v' of these extents"},
                    Wrong{"g (float x) => (y) <float w from v[] at []> { y = Neg (x) }",
                          "'w' is a constant; only a state is a piece of a parameter"},
                    Wrong{"g (float[2] w from v[8] at [0]) => (y) { y = Neg (w) }", "is a kind of initializer"},
                    Wrong{"g (float[", "expected"}, Wrong{"g (float[2 x) => () {}", "']'"},
                    Wrong{"g (float) => () {}", "a name after the type"},
                    Wrong{"g (seq(float) x) => () {}", "'seq' is not a tensor's element type"},
                    Wrong{"g (flaot x) => () {}", "'flaot' is not a tensor's element type"},
                    Wrong{"g () => () <float[2] w = {1}> {}", "1 element for 'w', which has 2"},
                    Wrong{"g () => () <float[2] w = {1, 2, 3}> {}", "3 elements for 'w'"},
                    Wrong{"g () => () <int8 w = {128}> {}", "'128' is not of type int8"},
                    Wrong{"g () => () <int64 w = {1.5}> {}", "'1.5' is not of type int64"},
                    Wrong{"g () => () <bool w = {maybe}> {}", "expected true or false, found 'maybe'"},
                    Wrong{"g () => () <float[n] w = {1}> {}", "extents in numbers"},
                    Wrong{"g () => () <float[-1] w> {}", "negative extent -1"},
                    Wrong{"g () => () <float[4611686018427387904, 8] w> {}", "larger than this machine's memory"},
                    Wrong{"g () => () <float[64, 2569999999999] w> {}", "larger than this machine's memory"},
                    Wrong{"g () => () <int4[1] w = {1}> {}", "int4 cannot be written"},
                    Wrong{"g () => () <float w = [\"location\": \"f\"]> {}", "external data"},
                    Wrong{"g (float x) => () { y = A <a = > (x) }", "an attribute's value"},
                    Wrong{"g (float x) => () { y = A <a = []> (x) }", "needs its type"},
                    Wrong{"g (float x) => () { y = A <a = [1, \"b\"]> (x) }", "not a mixture"},
                    Wrong{"g (float x) => () { y = A <a: int = \"b\"> (x) }", "is a string where its type says int"},
                    Wrong{"g (float x) => () { y = A <a: wood = 1> (x) }", "'wood' is not a type"},
                    Wrong{"g (float x) => () { y = A <a = 99999999999999999999> (x) }", "64-bit integer"},
                    Wrong{"g (float x) => () { y = A <a = 1, a = 2> (x) }", "'a' is given twice"},
                    Wrong{"g (float x) => () { y = A <a = \"open> (x) }", "this quote is never closed"},
                    Wrong{"g (float x) => () { y = A (x, {n +}) }", "expected an expression, found 'n +'"},
                    Wrong{"g (float x) => () { y = A (x, {= a, b}) }", "has one element"},
                    Wrong{"<ir_version: x> g () => () {}", "expected a version, found 'x'"},
                    Wrong{"<wheels: 4> g () => () {}", "'wheels' is not a field"},
                    Wrong{"<opset_import: [\"\" : 1, \"\" : 2]> g () => () {}", "imported twice"},
                    Wrong{"g () => () {} trailing", "expected '<', found 'trailing'"}));

INSTANTIATE_TEST_SUITE_P(
    names, TextErrors,
    testing::Values(Wrong{"g (float x) => () { y = Neg (z) }", "line 1, column 30: there is no value 'z'"},
                    Wrong{"g (float x) => (z) { }", "there is no value 'z'"},
                    Wrong{"g () => (y) { y = Neg (z)\n z = Neg (y) }", "'z' is used before"},
                    Wrong{"g (float x) => () { y = Neg (x)\n y = Neg (x) }", "'y' is the result of two nodes"},
                    Wrong{"g (float x) => () { x = Neg (x) }", "'x' is a node's result too"},
                    Wrong{"g (float x, int64 x) => () { }", "'x' is given twice"},
                    Wrong{"g () => () <float w, int64 w> { }", "'w' is given twice"},
                    Wrong{"g () => () <float[n] w> { }", "no node produces 'w'"},
                    Wrong{"g () => () <w> { }", "no node produces 'w'"},
                    Wrong{"g () => () <int64 w = {1} -> w> { }", "'w' is a constant"},
                    Wrong{"g () => () <float[2] w -> v> { }", "there is no value 'v'"},
                    Wrong{"g () => () <expression int64[2] s = {n}> { }", "as many elements"},
                    Wrong{"g (state float x) => () { }", "after the results"},
                    Wrong{"g (float x) => () { y = If <b = t () => (a) { a = Neg (q) }> (x) }", "no value 'q'"}));

TEST(text, nesting_is_bounded) {
  std::string text = "g () => () {", end = "}";
  for (int i = 0; i < 100000; ++i) text += "= A <b = g () => () {";
  EXPECT_THROW(parse_text(text), Error);
  std::string deep =
      "g (float[\"" + std::string(100000, '(') + "\"] x, float[\"" + std::string(100000, '-') + "1\"] y) => () {}";
  EXPECT_EQ(parse_text(deep).graph->inputs.size(), 2u);
}

// Whatever is cut off or swapped, the parser answers with a user error or a sound graph.
TEST(text, damaged_text_never_breaks_an_invariant) {
  constexpr std::string_view kText = R"(<ir_version: 10, opset_import: ["" : 20], metadata_props: ["a": "b"]>
g (float[n, "s + 1"] x, bool c) => (y) <float[2] w = {1.0, 2.0} -> v, expression int64[1] s = {n}> {
  [a] v = l.Neg <i = 1, f: floats = [1.0], t = float[2] {1, 2}, "q" = "r"> (w, {n, 2*@tp}, "", s)
  y = If <b = t () => (z) { z = Add (x, v) }> (c)
}
<domain: "l", opset_import: ["" : 20]> f <k, j: int = 1> (a) => (b) { b = Neg <i: int = @k> (a) })";
  parse_text(kText).graph->verify("test");
  int accepted = 0, refused = 0;
  auto attempt = [&](const std::string& text) {
    try {
      OnnxModel model = parse_text(text);
      model.graph->verify("test");
      std::string printed = print_text(model, {.types = true});
      EXPECT_EQ(print_text(parse_text(printed), {.types = true}), printed);
      ++accepted;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::user) << error.what() << "\n" << text;
      ++refused;
    }
  };
  for (size_t i = 0; i < kText.size(); ++i) {
    attempt(std::string(kText.substr(0, i)));
    std::string without(kText), doubled(kText);
    without.erase(i, 1);
    doubled.insert(i, 1, kText[i]);
    attempt(without);
    attempt(doubled);
    for (char c : std::string_view("\"{[(<=@x1-#")) {
      std::string swapped(kText);
      swapped[i] = c;
      attempt(swapped);
    }
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace tessera
