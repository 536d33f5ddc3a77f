#include "tessera/ir/experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rewrite/build.h"
#include "tessera/ir/on_demand.h"
#include "tessera/ir/text.h"
#include "tessera/onnx/export.h"
#include "tessera/onnx/import.h"
#include "tessera/rewrite/passes.h"
#include "tessera/rewrite/pipeline.h"

namespace tessera::rewrite {
namespace {

using testing::HasSubstr;
using testing::Not;

// Three experts, of which a token takes two.
constexpr std::string_view kRouting =
    "  p = Softmax (r)\n"
    "  w, i = TopK <axis = -1> (p, two)\n";

std::string model(std::string_view states, std::string_view nodes) {
  return "<ir_version: 10, opset_import: [\"\" : 20]>\nm (float[t, 4] x, float[t, 3] r) => (float[t, 4] y) <\n"
         "  int64[1] two = {2}, int64[1] one = {1}, int64[1] zero = {0}, int64[1] last = {-1}, int64[1] three = {3},\n"
         "  int64 n0 = {0}, int64 n1 = {1}, int64 n2 = {2}, float nothing = {0.0}, int64[3] numbers = {0, 1, 2},\n  " +
         std::string(states) + "\n> {\n" + std::string(kRouting) + std::string(nodes) + "}\n";
}

struct Raised {
  OnnxModel model;
  const Node* experts = nullptr;
  std::string text;

  explicit Raised(std::string_view source) : Raised(parse_text(source)) {}
  explicit Raised(OnnxModel source) : model(std::move(source)) {
    rewrite_model(model);
    for (const auto& node : model.graph->nodes())
      if (node->op_type == "Experts") experts = node.get();
    text = print_text(model);
  }
  std::string operand(size_t index) const {
    const Value* value = experts->input(index);
    while (value && value->producer && value->producer->is("Transpose")) value = value->producer->inputs[0];
    return value ? value->name : "";
  }
};

// What follows from gathered matrices, [2·t, …] rows; `unit` makes h [2·t, 1, 5] of g.
std::string gathered(std::string_view states, std::string_view unit, std::string_view more = "") {
  return model(std::string(states) +
                   ", int64[2] rows = {-1, 1}, int64[3] row = {-1, 1, 4}, int64[3] parts = {-1, 2, 4}," +
                   "int64[3] repeat = {1, 2, 1}",
               "  flat = Reshape (i, rows)\n  x1 = Unsqueeze (x, one)\n  x2 = Expand (x1, repeat)\n"
               "  xr = Reshape (x2, row)\n  a = GatherND (w1, flat)\n  g = MatMul (xr, a)\n" +
                   std::string(unit) + "  b = GatherND (w2, flat)\n  o = MatMul (h, b)\n  os = Squeeze (o, one)\n" +
                   std::string(more) +
                   "  wr = Reshape (w, rows)\n  ow = Mul (os, wr)\n  op = Reshape (ow, parts)\n"
                   "  y = ReduceSum <keepdims = 0> (op, one)\n");
}

TEST(RaiseExperts, that_gather_matrices_for_each_choice) {
  const Raised raised(gathered("float[3, 4, 5] w1, float[3, 5, 4] w2", "  h = Relu (g)\n"));
  ASSERT_TRUE(raised.experts) << raised.text;
  EXPECT_EQ(raised.operand(ExpertsOperand::tokens), "x");
  EXPECT_EQ(raised.operand(ExpertsOperand::choices), "i");
  EXPECT_EQ(raised.operand(ExpertsOperand::weights), "w");
  EXPECT_EQ(raised.operand(ExpertsOperand::gate), "w1");
  EXPECT_EQ(raised.operand(ExpertsOperand::down), "w2");
  EXPECT_EQ(raised.experts->get_string("activation", ""), "relu");
  EXPECT_THAT(raised.text, Not(HasSubstr("Gather")));
}

TEST(RaiseExperts, of_gated_units_in_halves) {
  const Raised raised(
      gathered("float[3, 4, 10] w1, float[3, 5, 4] w2",
               "  gs = Squeeze (g, one)\n  a1, a2 = Split <axis = 1, num_outputs = 2> (gs)\n"
               "  s = Sigmoid (a1)\n  sw = Mul (a1, s)\n  hm = Mul (sw, a2)\n  h = Unsqueeze (hm, one)\n"));
  ASSERT_TRUE(raised.experts) << raised.text;
  EXPECT_EQ(raised.experts->get_string("gated", ""), "halves");
  EXPECT_EQ(raised.experts->get_string("activation", ""), "swish");
}

TEST(RaiseExperts, of_bounded_units_in_interleaved_pairs) {
  const std::string unit =
      "  gs = Squeeze (g, one)\n  a1 = Slice (gs, zero, ten, one, two)\n  a2 = Slice (gs, one, ten, one, two)\n"
      "  c1 = Clip (a1, , seven)\n  c2 = Clip (a2, minus, seven)\n  sc = Mul (c1, alpha)\n  s = Sigmoid (sc)\n"
      "  sw = Mul (c1, s)\n  up = Add (c2, beta)\n  hm = Mul (up, sw)\n  h = Unsqueeze (hm, one)\n";
  const std::string states =
      "float[3, 4, 10] w1, float[3, 5, 4] w2, float[3, 4] b2, int64[1] ten = {10}, float seven = {7.0}, "
      "float minus = {-7.0}, float alpha = {1.5}, float beta = {1.0}";
  std::string text = gathered(states, unit, "  bb = GatherND (b2, flat)\n  ob = Add (os, bb)\n");
  text.replace(text.find("Mul (os, wr)"), 12, "Mul (ob, wr)");
  const Raised raised(text);
  ASSERT_TRUE(raised.experts) << raised.text;
  EXPECT_EQ(raised.experts->get_string("gated", ""), "interleaved");
  EXPECT_EQ(raised.experts->get_float("limit", 0), 7);
  EXPECT_EQ(raised.experts->get_float("beta", 0), 1);
  EXPECT_EQ(raised.experts->get_float("alpha", 0), 1.5F);
  EXPECT_EQ(raised.operand(ExpertsOperand::down_bias), "b2");
}

TEST(RaiseExperts, whose_activation_is_known) {
  EXPECT_FALSE(Raised(gathered("float[3, 4, 5] w1, float[3, 5, 4] w2", "  h = Tanh (g)\n")).experts);
}

// Every expert computes all tokens: [3, t, …].
std::string stacked(std::string_view weights) {
  return model("float[3, 4, 5] w1, float[3, 5, 4] w2, int64[2] shape = {0, 3}",
               "  x1 = Unsqueeze (x, zero)\n  g = MatMul (x1, w1)\n  h = Relu (g)\n  o = MatMul (h, w2)\n" +
                   std::string(weights) +
                   "  mt = Transpose <perm = [1, 0]> (m)\n  mu = Unsqueeze (mt, last)\n  ow = Mul (o, mu)\n"
                   "  y = ReduceSum <keepdims = 0> (ow, zero)\n");
}

TEST(RaiseStackedExperts, with_weights_that_are_scattered) {
  const Raised raised(
      stacked("  rs = Shape (r)\n  z = ConstantOfShape (rs)\n  m = ScatterElements <axis = 1> (z, i, w)\n"));
  ASSERT_TRUE(raised.experts) << raised.text;
  EXPECT_EQ(raised.operand(ExpertsOperand::tokens), "x");
  EXPECT_EQ(raised.operand(ExpertsOperand::choices), "i");
  EXPECT_EQ(raised.operand(ExpertsOperand::weights), "w");
  EXPECT_THAT(raised.text, Not(HasSubstr("MatMul")));
}

TEST(RaiseStackedExperts, with_weights_by_comparison) {
  EXPECT_TRUE(Raised(stacked("  iu = Unsqueeze (i, last)\n  e = Equal (iu, numbers)\n  ef = Cast <to = 1> (e)\n"
                             "  wu = Unsqueeze (w, last)\n  ew = Mul (ef, wu)\n"
                             "  m = ReduceSum <keepdims = 0> (ew, one)\n"))
                  .experts);
}

TEST(RaiseStackedExperts, needs_a_choice_of_few) {
  EXPECT_FALSE(Raised(stacked("  m = Identity (p)\n")).experts) << "every token takes all experts";
  EXPECT_FALSE(Raised(stacked("  m = ScatterElements <axis = 1> (p, i, w)\n")).experts) << "not over zeros";
}

TEST(RaiseStackedExperts, written_as_einsums) {
  const Raised raised(model("float[3, 4, 5] w1, float[3, 5, 4] w2",
                            "  g = Einsum <equation = \"th,ehf->tef\"> (x, w1)\n  h = Relu (g)\n"
                            "  o = Einsum <equation = \"tef,efh->teh\"> (h, w2)\n"
                            "  rs = Shape (r)\n  z = ConstantOfShape (rs)\n  m = ScatterElements <axis = 1> (z, i, w)\n"
                            "  y = Einsum <equation = \"teh,te->th\"> (o, m)\n"));
  EXPECT_TRUE(raised.experts) << raised.text;
}

constexpr std::string_view kThree =
    "float[5, 4] \"e.0.up\", float[4, 5] \"e.0.down\", float[5, 4] \"e.1.up\", float[4, 5] \"e.1.down\", "
    "float[5, 4] \"e.2.up\", float[4, 5] \"e.2.down\"";

// One expert's results for all tokens.
std::string expert(int e, std::string_view tokens = "x") {
  const std::string n = std::to_string(e);
  return "  g" + n + " = Gemm <transB = 1> (" + std::string(tokens) + ", \"e." + n + ".up\")\n  h" + n + " = Relu (g" +
         n + ")\n  o" + n + " = Gemm <transB = 1> (h" + n + ", \"e." + n + ".down\")\n";
}

// A sum over experts, with the weights of comparisons.
std::string summed(std::string_view states = kThree) {
  std::string nodes;
  for (int e : {0, 1, 2}) {
    const std::string n = std::to_string(e);
    nodes += expert(e) + "  q" + n + " = Equal (i, n" + n + ")\n  f" + n + " = Cast <to = 1> (q" + n + ")\n  m" + n +
             " = Mul (w, f" + n + ")\n  s" + n + " = ReduceSum (m" + n + ", last)\n  t" + n + " = Mul (o" + n + ", s" +
             n + ")\n";
  }
  return model(states, nodes + "  a0 = Add (nothing, t0)\n  a1 = Add (a0, t1)\n  y = Add (a1, t2)\n");
}

TEST(RaiseExpertSums, stacks_their_parameters) {
  OnnxModel source = parse_text(summed());
  for (Value* state : source.graph->values_of(ValueKind::state))
    state->data = Tensor::of<float>(DType::float32, state->data.dims,
                                    std::vector<float>(20, static_cast<float>(state->name[2] - '0')));
  rewrite_model(source);
  const Value* up = source.graph->find("e.#.up");
  ASSERT_TRUE(up) << print_text(source);
  EXPECT_EQ(up->data.dims, (Dims{3, 5, 4}));
  EXPECT_EQ(up->data.data, nullptr) << "no memory holds it twice";
  const Tensor whole = made_whole(up->data);
  for (size_t at : {0, 19, 20, 39, 40, 59}) EXPECT_EQ(whole.as<float>()[at], static_cast<float>(at / 20));
  EXPECT_EQ(source.graph->find("e.1.up"), nullptr);
  EXPECT_EQ(histogram(*source.graph)["Experts"], 1);
  EXPECT_EQ(histogram(*source.graph)["Gemm"], 0);
}

// Batch and sequence apart, for experts and router alike.
std::string apart(std::string_view from = "", std::string_view to = "") {
  std::string text = summed();
  const auto exchange = [&](std::string_view old, std::string_view with) {
    for (size_t at = text.find(old); at != std::string::npos; at = text.find(old, at + with.size()))
      text.replace(at, old.size(), with);
  };
  exchange("float[t, ", "float[b, s, ");
  for (int e : {0, 1, 2}) {
    const std::string n = std::to_string(e);
    exchange("Gemm <transB = 1> (x, \"e." + n + ".up\")", "MatMul (x, \"e." + n + ".up\")");
    exchange("Gemm <transB = 1> (h" + n + ", \"e." + n + ".down\")", "MatMul (h" + n + ", \"e." + n + ".down\")");
    exchange("float[5, 4] \"e." + n + ".up\"", "float[4, 5] \"e." + n + ".up\"");
    exchange("float[4, 5] \"e." + n + ".down\"", "float[5, 4] \"e." + n + ".down\"");
  }
  if (!from.empty()) exchange(from, to);
  return text;
}

TEST(RaiseExpertSums, of_tokens_in_several_dimensions) {
  const Raised raised(apart());
  ASSERT_TRUE(raised.experts) << raised.text;
  EXPECT_EQ(to_string(raised.experts->input(ExpertsOperand::tokens)->shape()), "[b*s, 4]");
  EXPECT_EQ(to_string(raised.experts->input(ExpertsOperand::choices)->shape()), "[b*s, 2]");
  EXPECT_EQ(to_string(raised.model.graph->find("y")->shape()), "[b, s, 4]");
  // The router's tokens turned: the same number, in another order.
  EXPECT_FALSE(Raised(apart("p = Softmax (r)", "rt = Transpose <perm = [1, 0, 2]> (r)\n  p = Softmax (rt)")).experts);
}

// Three experts whose matrices are rows of stacks; `cut` makes u{e} of w1 and d{e} of w2, both [out, in].
std::string of_stacks(std::string_view cut, std::string_view more = "") {
  std::string text = summed("float[3, 5, 4] w1, float[3, 4, 5] w2, int64[1] two1 = {2}" + std::string(more));
  for (const std::string n : {"0", "1", "2"}) {
    std::string both(cut);
    for (size_t at; (at = both.find('#')) != std::string::npos;) both.replace(at, 1, n);
    text.insert(text.find("  g" + n + " ="), both);
    for (const auto& [from, to] : {std::pair("\"e." + n + ".up\"", "u" + n), {"\"e." + n + ".down\"", "d" + n}})
      text.replace(text.find(from), from.size(), to);
  }
  return text;
}

TEST(RaiseExpertSums, whose_parameters_are_rows_of_stacks) {
  const std::string gathers = "  u# = Gather (w1, n#)\n  d# = Gather (w2, n#)\n";
  const std::string slices =
      "  us# = Slice (w1, b#, c#, zero)\n  u# = Squeeze (us#, zero)\n  ds# = Slice (w2, b#, c#, zero)\n"
      "  d# = Squeeze (ds#, zero)\n";
  const std::string bounds =
      ", int64[1] b0 = {0}, int64[1] c0 = {1}, int64[1] b1 = {1}, int64[1] c1 = {2}, int64[1] b2 = {2}, int64[1] c2 = "
      "{3}";
  for (const std::string& text : {of_stacks(gathers), of_stacks(slices, bounds)}) {
    const Raised raised(text);
    ASSERT_TRUE(raised.experts) << raised.text;
    EXPECT_EQ(raised.operand(ExpertsOperand::gate), "w1");
    EXPECT_EQ(raised.operand(ExpertsOperand::down), "w2");
    EXPECT_THAT(raised.text, Not(HasSubstr("Gather")));
  }
  std::string split = of_stacks("  u# = Squeeze (us#, zero)\n  d# = Squeeze (ds#, zero)\n");
  split.insert(split.find("  u0 ="),
               "  us0, us1, us2 = Split <num_outputs = 3> (w1)\n  ds0, ds1, ds2 = Split <num_outputs = 3> (w2)\n");
  EXPECT_TRUE(Raised(split).experts);
}

TEST(RaiseExpertSums, leaves_rows_of_other_experts) {
  std::string text = of_stacks("  u# = Gather (w1, n#)\n  d# = Gather (w2, n#)\n");
  text.replace(text.find("Gather (w2, n1)"), 15, "Gather (w2, n0)");
  EXPECT_FALSE(Raised(text).experts);
  std::string longer = of_stacks("  u# = Gather (w1, n#)\n  d# = Gather (w2, n#)\n");
  longer.replace(longer.find("float[3, 5, 4] w1"), 17, "float[4, 5, 4] w1");
  EXPECT_FALSE(Raised(longer).experts) << "one of four";
}

// Loops over experts, as they are, whose body has `nodes` that make t of w1e, w2e and the weights we, [tokens, 1].
std::string in_loop(std::string_view times = "three0") {
  return model(
      "float[3, 4, 5] w1, float[3, 5, 4] w2, int64 three0 = {3}, bool yes = {1}",
      "  rs = Shape (r)\n  z = ConstantOfShape (rs)\n  matrix = ScatterElements <axis = 1> (z, i, w)\n"
      "  xs = Shape (x)\n  a0 = Expand (nothing, xs)\n  y = Loop <body = over_experts (int64 e, bool on, float a) "
      "=> (bool on1, float a1) {\n    on1 = Identity (on)\n    w1e = Gather (w1, e)\n    w2e = Gather (w2, e)\n"
      "    we0 = Gather <axis = 1> (matrix, e)\n    we = Unsqueeze (we0, last)\n    g = MatMul (x, w1e)\n"
      "    h1 = Sigmoid (g)\n    h = Mul (g, h1)\n    o = MatMul (h, w2e)\n    t = Mul (o, we)\n"
      "    a2 = Add (a, t)\n    a1 = Identity (a2)\n  }> (" +
          std::string(times) + ", yes, a0)\n");
}

// As a file has it, whose bodies know what they use of the graph around them.
OnnxModel as_imported(std::string_view text) {
  OnnxModel model = parse_text(text);
  for (Value* state : model.graph->values_of(ValueKind::state))
    if (!state->data.data) state->data = Tensor::zeros(state->dtype(), state->data.dims);
  return import_model_bytes(export_model_bytes(model));
}

TEST(RaiseExpertSums, of_loops) {
  for (const int experts : {3, 300}) {
    std::string text = in_loop();
    const auto exchange = [&](const std::string& from, const std::string& to) {
      for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
        text.replace(at, from.size(), to);
    };
    const std::string count = std::to_string(experts);
    exchange("float[3, ", "float[" + count + ", ");
    exchange("float[t, 3] r", "float[t, " + count + "] r");
    exchange("three0 = {3}", "three0 = {" + count + "}");
    const Raised raised(as_imported(text));
    ASSERT_TRUE(raised.experts) << raised.text;
    EXPECT_EQ(raised.operand(ExpertsOperand::gate), "w1");
    EXPECT_EQ(raised.operand(ExpertsOperand::down), "w2");
    EXPECT_EQ(raised.experts->get_string("activation", ""), "swish");
    EXPECT_THAT(raised.text, Not(HasSubstr("flow."))) << "the loop is gone";
  }
}

// A loop that is not over experts stays a loop, however it reads its parameters.
TEST(RaiseExpertSums, leaves_loops_over_layers) {
  std::string text = in_loop();
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"MatMul (x, w1e)", "MatMul (a, w1e)"},
                                 {"three0 = {3}", "three0 = {300}"},
                                 {"float[3, 4, 5] w1, float[3, 5, 4] w2", "float[300, 4, 5] w1, float[300, 5, 4] w2"},
                                 {"float[t, 3] r", "float[t, 300] r"}})
    text.replace(text.find(from), from.size(), to);
  const Raised raised(as_imported(text));
  EXPECT_FALSE(raised.experts);
  EXPECT_THAT(raised.text, HasSubstr("flow.Loop"));
}

TEST(RaiseExpertSums, leaves_what_is_not_a_choice_of_all) {
  std::string two_alike = summed();
  two_alike.replace(two_alike.find("Equal (i, n2)"), 13, "Equal (i, n1)");
  EXPECT_FALSE(Raised(two_alike).experts) << "expert 2 is not a term, and 1 is twice";
  std::string shared = summed();
  shared.replace(shared.find("(h2, \"e.2.down\")"), 16, "(h2, \"e.1.down\")");
  EXPECT_FALSE(Raised(shared).experts) << "two experts share a parameter";
}

TEST(RaiseExpertSums, keeps_parameters_by_name_where_they_are_asked_for) {
  OnnxModel source = parse_text(summed());
  RewriteOptions options;
  options.barriers = {"e.1.up"};
  rewrite_model(source, options);
  EXPECT_EQ(histogram(*source.graph)["Experts"], 0);
  EXPECT_TRUE(source.graph->find("e.1.up"));
}

// What is computed on the way stays, if something else needs it; then the mixture would be computed twice.
TEST(RaiseExperts, keeps_results_on_the_way_where_something_else_needs_them) {
  const std::string by_choice = gathered("float[3, 4, 5] w1, float[3, 5, 4] w2", "  h = Relu (g)\n");
  const std::string of_all =
      stacked("  rs = Shape (r)\n  z = ConstantOfShape (rs)\n  m = ScatterElements <axis = 1> (z, i, w)\n");
  for (const auto& [text, names] : std::initializer_list<std::pair<std::string, std::vector<const char*>>>{
           {by_choice, {"g", "h", "o", "ow"}}, {of_all, {"g", "h", "o", "ow"}}, {summed(), {"g1", "h1", "o1", "t1"}}})
    for (const char* name : names) {
      SCOPED_TRACE(name);
      OnnxModel asked = parse_text(text), used = parse_text(text);
      RewriteOptions options;
      options.barriers = {name};
      rewrite_model(asked, options);
      EXPECT_EQ(histogram(*asked.graph)["Experts"], 0);
      used.graph->outputs.push_back(
          used.graph->add_node("Abs", {used.graph->find(name)}, {"elsewhere"}, "")->outputs[0]);
      rewrite_model(used);
      EXPECT_EQ(histogram(*used.graph)["Experts"], 0);
    }
}

// The router may read tokens as they were moved for the experts.
TEST(RaiseStackedExperts, whose_tokens_something_else_reads) {
  OnnxModel model =
      parse_text(stacked("  rs = Shape (r)\n  z = ConstantOfShape (rs)\n  m = ScatterElements <axis = 1> (z, i, w)\n"));
  model.graph->outputs.push_back(
      model.graph->add_node("Abs", {model.graph->find("x1")}, {"elsewhere"}, "")->outputs[0]);
  EXPECT_TRUE(Raised(std::move(model)).experts);
}

// A loop over experts, unrolled, in which NonZero finds the tokens of each.
std::string looped(std::string_view of_rows = "") {
  std::string nodes =
      "  iu = Unsqueeze (i, last)\n  eq = Equal (iu, numbers)\n  ei = Cast <to = 7> (eq)\n"
      "  masks = Transpose <perm = [2, 1, 0]> (ei)\n  wu = Unsqueeze (w, two)\n  xs = Shape (x)\n"
      "  a = Expand (nothing, xs)\n";
  for (int e : {0, 1, 2}) {
    const std::string n = std::to_string(e);
    nodes += "  mask" + n + " = Gather (masks, n" + n + ")\n  nz" + n + " = NonZero (mask" + n + ")\n  pairs" + n +
             " = Transpose <perm = [1, 0]> (nz" + n + ")\n  sl" + n + " = Slice (pairs" + n +
             ", zero, one, one)\n  slot" + n + " = Squeeze (sl" + n + ", one)\n  tk" + n + " = Slice (pairs" + n +
             ", one, two, one)\n  token" + n + " = Squeeze (tk" + n + ", one)\n  tc" + n + " = Unsqueeze (token" + n +
             ", last)\n  x" + n + " = GatherND (x, tc" + n + ")\n" + expert(e, "x" + n) + "  sc" + n +
             " = Unsqueeze (slot" + n + ", last)\n  at" + n + " = Concat <axis = -1> (tc" + n + ", sc" + n + ")\n  we" +
             n + " = GatherND (wu, at" + n + ")\n  ow" + n + " = Mul (o" + n + ", we" + n + ")\n  " +
             (e == 2 ? "y" : "a" + n) + " = ScatterND <reduction = \"add\"> (" +
             (e == 0 ? "a" : "a" + std::to_string(e - 1)) + ", tc" + n + ", ow" + n + ")\n";
  }
  if (!of_rows.empty()) nodes.replace(nodes.find("h1 = Relu (g1)"), 14, of_rows);
  return model(kThree, nodes);
}

TEST(SpreadRoutedRows, makes_one_mixture_of_a_loop_over_experts) {
  const Raised raised(looped());
  ASSERT_TRUE(raised.experts) << raised.text;
  EXPECT_THAT(raised.text, Not(HasSubstr("NonZero")));
  EXPECT_EQ(raised.operand(ExpertsOperand::tokens), "x");
  EXPECT_EQ(raised.operand(ExpertsOperand::choices), "i");
  EXPECT_EQ(raised.operand(ExpertsOperand::down), "e.#.down");
}

TEST(SpreadRoutedRows, takes_rows_of_stacks) {
  std::string text = looped();
  for (const std::string n : {"0", "1", "2"}) {
    text.insert(text.find("  g" + n + " ="),
                "  u" + n + " = Gather (w1, n" + n + ")\n  d" + n + " = Gather (w2, n" + n + ")\n");
    for (const auto& [from, to] : {std::pair("(x" + n + ", \"e." + n + ".up\")", "(x" + n + ", u" + n + ")"),
                                   {"(h" + n + ", \"e." + n + ".down\")", "(h" + n + ", d" + n + ")"}})
      text.replace(text.find(from), from.size(), to);
  }
  text.replace(text.find(kThree), kThree.size(), "float[3, 5, 4] w1, float[3, 4, 5] w2");
  const Raised raised(text);
  ASSERT_TRUE(raised.experts) << raised.text;
  EXPECT_EQ(raised.operand(ExpertsOperand::gate), "w1");
}

// The same as an ONNX Loop.
std::string searching_loop(std::string_view of_rows = "Relu (g)") {
  return model(
      "float[3, 4, 5] w1, float[3, 5, 4] w2, int64 three0 = {3}, bool yes = {1}",
      "  iu = Unsqueeze (i, last)\n  eq = Equal (iu, numbers)\n  ei = Cast <to = 7> (eq)\n"
      "  masks = Transpose <perm = [2, 1, 0]> (ei)\n  wu = Unsqueeze (w, two)\n  xs = Shape (x)\n"
      "  a0 = Expand (nothing, xs)\n  y = Loop <body = over_experts (int64 e, bool on, float a) => (bool on1, float "
      "a1) "
      "{\n    on1 = Identity (on)\n    mask = Gather (masks, e)\n    nz = NonZero (mask)\n"
      "    pairs = Transpose <perm = [1, 0]> (nz)\n    sl = Slice (pairs, zero, one, one)\n"
      "    slot = Squeeze (sl, one)\n    tk = Slice (pairs, one, two, one)\n    token = Squeeze (tk, one)\n"
      "    tc = Unsqueeze (token, last)\n    xr = GatherND (x, tc)\n    u = Gather (w1, e)\n    d = Gather (w2, e)\n"
      "    g = MatMul (xr, u)\n    h = " +
          std::string(of_rows) +
          "\n    o = MatMul (h, d)\n    sc = Unsqueeze (slot, last)\n    at = Concat <axis = -1> (tc, sc)\n"
          "    we = GatherND (wu, at)\n    ow = Mul (o, we)\n    a1 = ScatterND <reduction = \"add\"> (a, tc, ow)\n"
          "  }> (three0, yes, a0)\n");
}

TEST(SpreadRoutedRows, takes_loops_that_are_not_unrolled) {
  const Raised raised(as_imported(searching_loop()));
  ASSERT_TRUE(raised.experts) << raised.text;
  EXPECT_THAT(raised.text, Not(HasSubstr("flow.")));
  EXPECT_EQ(raised.operand(ExpertsOperand::gate), "w1");
  EXPECT_EQ(raised.operand(ExpertsOperand::choices), "i");
}

TEST(SpreadRoutedRows, passes_over_loops_that_nobody_uses) {
  std::string text = searching_loop();
  const size_t first = text.find("  y = Loop"), end = text.find("(three0, yes, a0)\n") + 18;
  std::string unused = text.substr(first, end - first);
  unused.replace(unused.find("y = Loop"), 8, "unused = Loop");
  text.insert(end, unused);
  const Raised raised(as_imported(text));
  EXPECT_TRUE(raised.experts) << raised.text;
}

// Such a loop runs between parts, one iteration after the other.
TEST(SpreadRoutedRows, leaves_loops_that_mix_rows) {
  OnnxModel mixing = as_imported(searching_loop("CumSum (g, n0)"));
  spread_routed_rows(mixing);
  EXPECT_EQ(histogram(*mixing.graph)["Loop"], 1);
}

TEST(SpreadRoutedRows, leaves_what_mixes_rows) {
  OnnxModel source = parse_text(looped("h1 = CumSum (g1, n0)"));
  EXPECT_ANY_THROW(rewrite_model(source)) << "its sizes depend on data";
}

}  // namespace
}  // namespace tessera::rewrite
