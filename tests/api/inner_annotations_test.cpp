// Device annotations in bodies of control flow and in functions are checked, completed and followed.
#include <sstream>

#include "api/annotated.h"

namespace tessera::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// What nodes in bodies say is checked, too.
TEST_F(DeviceAnnotations, InBodiesAreChecked) {
  const std::string text = R"(
    g (float[4] x, bool c) => (float[4] y) {
      y = If (c) <then_branch = t () => (float[4] a) { a = Relu (x) },
                  else_branch = e () => (float[4] b) { b = Neg (x) }>
    })";
  EXPECT_THAT(faults(model(text, 2, {{"a", {spec("a", "S")}}})), IsEmpty());
  EXPECT_THAT(faults(model(text, 2, {{"a", {spec("b", "S")}}})), ElementsAre(HasSubstr("'b': it is neither")));
  const Model undeclared = model(text, std::vector<DeviceConfiguration>{}, {{"a", {{"c", {spec("a", "S")}, {}}}}});
  EXPECT_FALSE(check_annotations(undeclared).empty()) << "no configuration is declared";
  ShardingSpec far = spec("x", "S");
  far.axes[0].axis = 7;
  EXPECT_THAT(faults(model(text, 2, {{"a", {far}}})), ElementsAre(HasSubstr("'x': it has no axis 7: it is [4]")));
}

// The same for nodes in bodies, and once for all iterations that are written out.
TEST_F(DeviceAnnotations, NameOperatorsInBodiesThatCannotBeSoSplit) {
  const std::string text = R"(
    g (float[4, 8] x) => (float[4, 8] y, float[4, 8] z) <float[8, 8] w, int64 many = {100}, int64 two = {2}> {
      y = Loop <body = often (int64 i, bool c, float[4, 8] v) => (bool c2, float[4, 8] v2) {
        v2 = MatMul (v, w)
        c2 = Identity (c)
      }> (many, "", x)
      z = Loop <body = twice (int64 j, bool d, float[4, 8] u) => (bool d2, float[4, 8] u2) {
        s = Softmax (u)
        p = MatMul (s, w)
        u2 = Neg (p)
        d2 = Identity (d)
      }> (two, "", x)
    })";
  EXPECT_THAT(faults(model(text, 2, {{"v2", {spec("v", "RS"), spec("w", "SR")}}, {"p", {spec("s", "SR")}}})),
              IsEmpty());
  EXPECT_THAT(
      faults(model(text, 2, {{"v2", {spec("v", "SR"), spec("w", "RS")}}})),
      ElementsAre(AllOf(HasSubstr("MatMul producing 'y/v2', configuration 'c': different axes of 'v' and 'w'"))));
  EXPECT_THAT(faults(model(text, 2, {{"p", {spec("s", "RS"), spec("w", "RR")}}})),
              ElementsAre(HasSubstr("axis 0 of 'w' must be split like the corresponding axis of 's'")));
  EXPECT_THAT(faults(model(text, 2, {{"s", {spec("s", "SR")}}, {"p", {spec("w", "RS")}}})),
              ElementsAre(HasSubstr("different axes of 's' and 'w'")));
}

// What follows in bodies and functions is written down, too, and following it is the same program.
TEST_F(DeviceAnnotations, CompleteBodiesAndFunctions) {
  const std::string text = R"(<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
    g (float[4, 8] x) => (float[4, 8] y, float[4, 8] z) <float[8, 8] w, int64 many = {100}, int64 two = {2}> {
      f = local.F (x, w)
      k = local.F (f)
      )" + kBranchInALoop + R"((many, "", k)
      z = Loop <body = twice (int64 j, bool d, float[4, 8] u) => (bool d2, float[4, 8] u2) {
        shape = Constant <value = int64[2] {4, 8}> ()
        q = Reshape (u, shape)
        u2 = Abs (q)
        d2 = Identity (d)
      }> (two, "", k)
    }
    <domain: "local", opset_import: ["" : 21]>
    F (m, n) => (o) { h = Neg (m)  o = Abs (h) })";
  const auto specs_of = [](const Model& model, const std::string& result) {
    std::vector<ShardingSpec> found;
    const std::function<void(const Graph&)> look_at = [&](const Graph& graph) {
      for (const auto& node : graph.nodes()) {
        for (const Graph* region : node->regions()) look_at(*region);
        if (node->outputs[0]->name == result)
          for (const NodeDevices& said : device_annotations(*node))
            found.insert(found.end(), said.specs.begin(), said.specs.end());
      }
    };
    look_at(*model.impl().model.graph);
    for (const Function& function : model.impl().model.functions) look_at(*function.body);
    return found;
  };
  const std::map<std::string, std::vector<ShardingSpec>> rows = {{"f", {spec("x", "SR"), spec("f", "SR")}}};
  const std::map<std::string, std::vector<ShardingSpec>> columns = {{"p", {spec("w", "RS")}},
                                                                    {"u2", {spec("q", "RS")}}};
  for (const auto& said : {rows, columns}) {
    const Model partial = model(text, 2, said);
    const Model whole = partial.completed("c");
    EXPECT_THAT(faults(whole), IsEmpty());
    for (const char* result : {"p", "r", "a", "b", "u2", "h", "o", "f", "y"})
      EXPECT_GE(specs_of(whole, result).size(), 2u) << result;
    EXPECT_EQ(specs_of(whole, "q").size(), 2u) << "a shape has no layout";
    const Program before = expect_followed(partial), after = expect_followed(whole);
    EXPECT_EQ(after.mesh().str(), "d=2");
    ASSERT_EQ(before.summary().collectives.size(), after.summary().collectives.size());
    for (size_t i = 0; i < before.summary().collectives.size(); ++i) {
      EXPECT_EQ(before.summary().collectives[i].kind, after.summary().collectives[i].kind);
      EXPECT_EQ(before.summary().collectives[i].count, after.summary().collectives[i].count);
    }
    EXPECT_EQ(specs_of(whole.completed("c"), "p"), specs_of(whole, "p")) << "nothing is left to complete";
  }
  const auto half = [&](const char* tensor, int64_t axis, int64_t size) {
    return ShardingSpec{tensor, {0, 1}, {}, {{axis, {{size, "", 2}}}}};
  };
  const Model whole = model(text, 2, rows).completed("c");
  EXPECT_THAT(specs_of(whole, "o"), ElementsAre(half("h", 0, 4), half("o", 0, 4))) << "both calls agree";
  EXPECT_THAT(specs_of(whole, "b"), ElementsAre(half("v", 0, 4), half("b", 0, 4)));
  const ShardingSpec w_whole{"w", {0, 1}, {}, {}};
  EXPECT_THAT(specs_of(whole, "p"), ElementsAre(half("v", 0, 4), w_whole, half("p", 0, 4)));
}

// What must be known before a run stays known: sizes that a body captures, that a function computes, or that it is
// given.
TEST_F(DeviceAnnotations, CompleteWhatReadsSizes) {
  const auto whole_of = [&](const std::string& text, const char* result, const char* tensor, const char* layout) {
    const Model whole = model(text, 2, {{result, {spec(tensor, layout)}}}).completed("c");
    EXPECT_THAT(faults(whole), IsEmpty()) << text;
    expect_followed(whole);
    return whole;
  };
  for (const char* reader : {"ReduceSum <keepdims = 1> (x1, one)", "Slice (x1, one, two, one)", "CumSum (x1, axis)",
                             "Pad (x1, pads)", "Tile (x1, twice)", "Expand (x1, shape)", "TopK (x1, one)"})
    whole_of(fmt::format(R"(
      g (float[4, 8] x) => (float[p, q] y)
        <int64[1] one = {{1}}, int64[1] two = {{2}}, int64 axis = {{1}}, int64[4] pads = {{0, 1, 0, 1}},
         int64[2] twice = {{1, 2}}, int64[2] shape = {{4, 8}}, float zero = {{0}}> {{
        x1 = Neg (x)
        sum = ReduceSum <keepdims = 0> (x)
        c = Greater (sum, zero)
        y = If (c) <then_branch = t () => (a) {{ a{0} = {1} }}, else_branch = e () => (b) {{ b{0} = {1} }}>
      }})",
                         std::string(reader).starts_with("TopK") ? ", i" : "", reader),
             "x1", "x1", "SR");
  whole_of(R"(<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
    g (float[4, 8] x, float[1, 1, 4, 8] image) => (float[4, 8] y, float[1, 1, 8, 16] z) {
      scales = Constant <value = float[4] {1, 1, 2, 2}> ()
      y = local.F (x)
      z = local.G (image, scales)
    }
    <domain: "local", opset_import: ["" : 21]>
    F (m) => (o) {
      s = Shape (m)
      r = Reshape (m, s)
      o = Abs (r)
    }
    <domain: "local", opset_import: ["" : 21]>
    G (m, s) => (o) { o = Resize <mode = "nearest"> (m, "", s) })",
           "y", "y", "SR");
}

// What another configuration of that name has said in bodies and functions is gone.
TEST_F(DeviceAnnotations, AreReplacedEverywhere) {
  const std::string text = R"(<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
    g (float[8, 8] x) => (float[8, 8] y) <float zero = {0}> {
      sum = ReduceSum <keepdims = 0> (x)
      c = Greater (sum, zero)
      o = Gelu (x)
      p = local.F (o)
      y = If (c) <then_branch = t () => (float[8, 8] a) { a = Abs (p) }, else_branch = e () => (float[8, 8] b) { b = Neg (p) }>
    }
    <domain: "local", opset_import: ["" : 21]> F (r) => (q) { q = Relu (r) }
    <domain: "", opset_import: ["" : 21]> Gelu (i) => (j) { j = Sigmoid (i) })";
  for (const char* said : {"y", "a", "q", "j"}) {
    SCOPED_TRACE(said);
    const Model four = model(text, 4, {{said, {spec(said, "SR@0123")}}});
    for (const Model& before : {four, four.completed("c")}) {
      const Model two = before.annotated(Mesh::parse("tp=2"), {}, "c");
      EXPECT_THAT(faults(two), IsEmpty());
      expect_followed(two);
    }
  }
}

// An operand that a call leaves out has none, nor has it in the bodies of the function's nodes.
TEST_F(DeviceAnnotations, CompleteFunctionsWithOperandsLeftOut) {
  const std::string text = R"(<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
    g (float[4, 8] x) => (float[4, 8] y, float[4, 8] z) <float low = {0}> {
      y = local.F (x, low)
      z = local.F (x)
    }
    <domain: "local", opset_import: ["" : 21]>
    F (m, n) => (o) {
      none = Constant <value = float {0}> ()
      sum = ReduceSum <keepdims = 0> (m)
      c = Greater (sum, none)
      k = If (c) <then_branch = t () => (a) { a = Clip (m, n) }, else_branch = e () => (b) { b = Neg (m) }>
      o = Clip (k, n)
    })";
  const Model whole = model(text, 2, {{"y", {spec("x", "SR"), spec("y", "SR")}}}).completed("c");
  EXPECT_THAT(faults(whole), IsEmpty());
  expect_followed(whole);
}

// Whether a program makes a value of that name, and lays it out so.
bool has_layout(const Program& program, const std::string& value, const std::string& layout) {
  std::istringstream lines(program.text());
  for (std::string line; std::getline(lines, line);)
    if (line.find("\"" + value + "\" = ") != std::string::npos && line.ends_with(": " + layout)) return true;
  return false;
}

// A loop that stays one, a branch in it that the run decides, a scan, and a loop that is written out.
TEST_F(DeviceAnnotations, InBodiesAreFollowed) {
  const std::string text = R"(
    g (float[4, 8] x, float[3, 4, 8] rows) => (float[4, 8] y, float[4, 8] z, float[3, 4, 8] all)
      <float[8, 8] w, int64 many = {100}, int64 two = {2}> {
      yes = Constant <value = bool {1}> ()
      )" + kBranchInALoop + R"((many, yes, x)
      z = Loop <body = twice (int64 j, bool d, float[4, 8] u) => (bool d2, float[4, 8] u2) {
        q = Add (u, u)
        u2 = Identity (q)
        d2 = Identity (d)
      }> (two, "", x)
      last, all = Scan <num_scan_inputs = 1, body = each (float[4, 8] h, float[4, 8] row) =>
          (float[4, 8] h2, float[4, 8] out) { h2 = Add (h, row)  out = Abs (h2) }> (x, rows)
    })";
  // The weight that the body multiplies by is split by columns, and so is the product.
  const Program columns = expect_followed(model(text, 2, {{"p", {spec("w", "RS")}}}));
  EXPECT_EQ(columns.mesh().str(), "d=2") << "no other node names a device";
  EXPECT_TRUE(has_layout(columns, "y/w.as", "[-, 8{d}]")) << columns.text();
  EXPECT_TRUE(has_layout(expect_followed(model(text, 2, {{"p", {spec("p", "SR")}}})), "y/p.as", "[4{d}, -]"));
  EXPECT_TRUE(has_layout(expect_followed(model(text, 2, {{"a", {spec("p", "RS")}}})), "y/r/then/p.as", "[-, 8{d}]"));
  EXPECT_TRUE(has_layout(expect_followed(model(text, 2, {{"out", {spec("h2", "SR"), spec("out", "SR")}}})),
                         "last/1/out.as", "[4{d}, -]"));
  ShardingSpec from_the_end = spec("q", "RS");
  from_the_end.axes[0].axis = -1;
  const Program both = expect_followed(model(text, 2, {{"q", {from_the_end}}}));
  for (const char* iteration : {"z/0/q.as", "z/1/q.as"})
    EXPECT_TRUE(has_layout(both, iteration, "[-, 8{d}]")) << iteration << both.text();
  EXPECT_FALSE(has_layout(both, "z/1/q.as", "[4{d}, -]"));
  // One node's result is the next one's operand, and both say how it lies.
  expect_followed(model(text, 2, {{"p", {spec("p", "SR")}}, {"size", {spec("p", "RS")}}, {"b", {spec("b", "RS")}}}));
}

// As nearly as can be, and with a word.
TEST_F(DeviceAnnotations, InBodiesSayWhatTheyCannotFollow) {
  const std::string text = R"(
    g (float[4, 4] x) => (float[4, 4] y, float[4, 4] z) <float zero = {0}> {
      z = Abs (x)
      sum = ReduceSum <keepdims = 0> (x)
      c = Greater (sum, zero)
      y = If (c) <then_branch = t () => (float[4, 4] a) { k = ReduceSum <keepdims = 0> (x)  a = Add (x, k) },
                  else_branch = e () => (float[4, 4] b) { b = Neg (x) }>
    })";
  const auto warnings = [&](const std::map<std::string, std::vector<ShardingSpec>>& specs) {
    const ConfiguredModel configured = model(text, 2, specs).configured("c");
    const Program program = compile(configured.model, Mesh::parse(configured.plan.mesh), configured.plan);
    std::vector<std::string> all = configured.warnings;
    all.insert(all.end(), program.summary().warnings.begin(), program.summary().warnings.end());
    return all;
  };
  EXPECT_THAT(warnings({{"z", {spec("x", "SR@01")}}, {"b", {spec("x", "SR@10")}}}),
              ElementsAre(AllOf(HasSubstr("'x' in 2 shards on devices 1,0 is not a layout of this mesh"))));
  EXPECT_THAT(warnings({{"z", {spec("x", "SR@01")}}, {"k", {spec("k", "RS")}}}),
              ElementsAre(AllOf(HasSubstr("k' has 0 dimensions"), HasSubstr("propagation decides"))));
  ShardingSpec from_both = spec("x", "SS@0011");
  from_both.axes[1].axis = -1;
  EXPECT_THAT(warnings({{"b", {from_both}}}), Contains(HasSubstr("axes that count from both ends")));
}

TEST_F(DeviceAnnotations, InBodiesPlaceNothing) {
  const std::string text = R"(
    g (float[4] x) => (float[4] y) <float zero = {0}> {
      sum = ReduceSum <keepdims = 0> (x)
      c = Greater (sum, zero)
      y = If (c) <then_branch = t () => (float[4] a) { n = Neg (x)  a = Relu (n) },
                  else_branch = e () => (float[4] b) { b = Neg (x) }>
    })";
  const ConfiguredModel placed =
      model(text, 2, {{"y", {spec("y", "S")}}, {"n", {spec("n", "R@1")}}, {"b", {spec("b", "R@0")}}}).configured("c");
  EXPECT_THAT(placed.warnings,
              ElementsAre(AllOf(HasSubstr("all devices run it"), HasSubstr("2 nodes in its bodies say"))));
  expect_followed(model(text, 2, {{"y", {spec("y", "S")}}}));
}

// A function is called twice, and calls another; each call has the layouts of its nodes.
TEST_F(DeviceAnnotations, InFunctionsAreFollowedInEachCall) {
  const std::string text = R"(<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
    g (float[4, 8] x) => (float[4, 8] z) <float[8, 16] up, float[16, 8] down> {
      y = local.Block (x, up, down)
      z = local.Block (y, up, down)
    }
    <domain: "local", opset_import: ["" : 21, "local" : 1]>
    Block (a, u, d) => (c) {
      h = local.Half (a, u)
      c = MatMul (h, d)
    }
    <domain: "local", opset_import: ["" : 21]>
    Half (p, w) => (r) {
      q = MatMul (p, w)
      r = Relu (q)
    })";
  const Program columns = expect_followed(model(text, 2, {{"q", {spec("w", "RS")}}}));
  EXPECT_EQ(columns.mesh().str(), "d=2");
  EXPECT_EQ(layout_of(columns, "up"), "[-, 16{d}]");
  ASSERT_EQ(columns.summary().collectives.size(), 1u);
  EXPECT_EQ(columns.summary().collectives[0].count, 2) << "the partial sums of each call";
  // A call's own words are of its operands and results, wherever its nodes put them.
  const Program rows =
      expect_followed(model(text, 2, {{"y", {spec("x", "SR"), spec("y", "RR")}}, {"h", {spec("h", "SR")}}}));
  EXPECT_EQ(layout_of(rows, "x"), "[4{d}, -]");
  EXPECT_EQ(layout_of(rows, "y"), "[-, -]");
  EXPECT_EQ(layout_of(rows, "z"), "[4{d}, -]") << "the second call says nothing of its own";
  EXPECT_EQ(layout_of(expect_followed(model(text, 2, {{"z", {spec("z", "RS")}}, {"q", {spec("q", "SR")}}})), "z"),
            "[-, 8{d}]");
}

// A call in a branch; a function whose branch is annotated, called with one value twice; and one that is an operator of
// Tessera's own.
TEST_F(DeviceAnnotations, InFunctionsAreFollowedWhereverTheyAreCalled) {
  const std::string functions = R"(
    <domain: "local", opset_import: ["" : 21]>
    F (p, v) => (r) { q = MatMul (p, v)  r = Relu (q) }
    <domain: "local", opset_import: ["" : 21]>
    G (s, t) => (u) {
      m = ReduceSum <keepdims = 0> (s)
      none = Constant <value = float {0}> ()
      d = Greater (m, none)
      u = If (d) <then_branch = t1 () => (f) { f = Add (s, t) }, else_branch = e1 () => (h) { h = Sub (s, t) }>
    }
  )";
  const auto own = [](const std::string& domain) {
    return "<domain: \"" + domain + R"(", opset_import: ["" : 21]> Gelu (i) => (j) { j = Sigmoid (i) })";
  };
  const std::string text = R"(<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
    g (float[4, 8] x) => (float[4, 8] y, float[4, 8] z) <float[8, 8] w, float zero = {0}> {
      sum = ReduceSum <keepdims = 0> (x)
      c = Greater (sum, zero)
      y = If (c) <then_branch = t () => (float[4, 8] a) { a = local.F (x, w) },
                  else_branch = e () => (float[4, 8] b) { b = Neg (x) }>
      o = Gelu (x)
      z = local.G (x, x)
    })" + functions;
  EXPECT_EQ(layout_of(expect_followed(model(text, 2, {{"q", {spec("v", "RS")}}})), "w"), "[-, 8{d}]");
  const Program branch = expect_followed(model(text, 2, {{"f", {spec("s", "SR")}}}));
  EXPECT_EQ(branch.mesh().str(), "d=2") << "only a branch of a function is annotated";
  const Program twice = expect_followed(model(text, 2, {{"z", {spec("x", "SR")}}, {"m", {spec("s", "SR")}}}));
  EXPECT_EQ(twice.text().find("AllGather"), std::string::npos) << "both operands lie so";
  for (const char* domain : {"", "ai.onnx"})
    EXPECT_THAT(
        model(text + own(domain), 2, {{"y", {spec("y", "SR")}}, {"j", {spec("j", "SR")}}}).configured("c").warnings,
        ElementsAre(AllOf(HasSubstr("functions that are operators of Tessera's own"), HasSubstr("(1 node)"))))
        << domain;
  Said said = {{"q", {{"other", {spec("v", "RS")}, {}}}}, {"y", {{"c", {spec("y", "SR")}, {}}}}};
  EXPECT_THAT(model(text, {{"c", 2, {}}, {"other", 2, {}}}, said).configured("c").warnings, IsEmpty());
}

TEST_F(DeviceAnnotations, OfCallsMayPlaceAFunction) {
  const std::string text = R"(<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
    g (float[4, 8] x) => (float[4, 8] z) { y = local.F (x)  z = local.F (y) }
    <domain: "local", opset_import: ["" : 21]>
    F (a) => (c) { b = Neg (a)  c = Relu (b) })";
  Said said;
  for (const int64_t stage : {0, 1}) said[stage == 0 ? "y" : "z"] = {{"c", {}, stage}};
  said["b"] = {{"c", {}, std::nullopt}};
  const Program staged = expect_followed(model(text, {{"c", 2, {}}}, said));
  EXPECT_EQ(staged.mesh().str(), "d=2");
  EXPECT_EQ(staged.summary().collectives.size(), 1u) << "from stage to stage";
}

}  // namespace
}  // namespace tessera::test
