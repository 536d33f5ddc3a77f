// Spellings that tools turn into each other have one normal form; other computations have other ones.
#include "tessera/program_io/normal_form.h"

#include <gtest/gtest.h>

#include "tessera/ir/text.h"
#include "tessera/ops/op.h"
#include "tessera/program_io/lowering.h"
#include "tessera/proof/meaning.h"
#include "tessera/rewrite/passes.h"

namespace tessera::program_io {
namespace {

spmd::Program program_of(OnnxModel model) {
  spmd::Program program;
  program.mesh = Mesh::parse("tp=2");
  program.graph = std::move(model.graph);
  ops::infer_types(*program.graph);
  for (Value* input : program.graph->inputs) program.inputs.push_back({input->name, input});
  for (Value* output : program.graph->outputs) program.outputs.push_back({output->name, output});
  return program;
}

proof::Number normal_number(const std::string& body) {
  const std::string text = R"(<ir_version: 10, opset_import: ["" : 24]>
    m (float[b, 4] x, int64[b, 3] ids) => (float[b, 6] y) <float[4, 6] w, float[6, 4] v, float[6] c> {)";
  return proof::meaning_of(normal_form(program_of(parse_text(text + body + "}")))).whole;
}

struct Spellings {
  const char* name;
  const char* a;
  const char* b;
  friend std::ostream& operator<<(std::ostream& stream, const Spellings& each) { return stream << each.name; }
};

class NormalForm : public testing::TestWithParam<Spellings> {};

TEST_P(NormalForm, IsOneForAllSpellings) {
  EXPECT_EQ(normal_number(GetParam().a), normal_number(GetParam().b));
}

const Spellings kSame[] = {
    {"permutations", "y = MatMul (x, w)", "t = Transpose (x)  u = Transpose <perm = [1, 0]> (t)  y = MatMul (u, w)"},
    {"views", "r = Reshape (x, {2, 2*b}) y0 = Reshape (r, {b, 4})  y = MatMul (y0, w)", "y = MatMul (x, w)"},
    {"products", "y = Gemm (x, w, c)", "p = MatMul (x, w)  y = Add (c, p)"},
    {"shapes", "s = Shape (x)  r = Relu (x)  q = Reshape (r, s)  y = MatMul (q, w)", "r = Relu (x)  y = MatMul (r, w)"},
    {"constants",
     "k = Constant <value_float = 0.5> ()  h = Constant <value_float = 0.5> ()  t = Add (k, h)"
     "  p = MatMul (x, w)  y = Sub (p, t)",
     "t = Constant <value_float = 1.0> ()  p = MatMul (x, w)  y = Sub (p, t)"},
};
INSTANTIATE_TEST_SUITE_P(Of, NormalForm, testing::ValuesIn(kSame),
                         [](const auto& info) { return std::string(info.param.name); });

// A tool inlines the functions that a model brings along; we know some of them as operators.
TEST(NormalForm, HasTheBodiesOfLocalOperators) {
  auto model = [](bool inlined) {
    OnnxModel made = parse_text(R"(<ir_version: 10, opset_import: ["" : 24, "tessera" : 1, "other" : 1]>
      m (int64[b, 3] ids) => (float[b, 3, 4] y) <float[5, 4] table> {
        y = tessera.GatherShard <axis = 0> (table, ids, {= 5}, {= 10})
      })");
    if (!inlined) return made;
    Node* node = made.graph->nodes().front().get();
    made.functions.push_back(local_function(*node));
    made.functions.back().domain = node->domain = "other";
    rewrite::inline_functions(made);
    return made;
  };
  const proof::Number kept = proof::meaning_of(normal_form(program_of(model(false)))).whole;
  EXPECT_EQ(kept, proof::meaning_of(normal_form(program_of(model(true)))).whole);
  EXPECT_NE(kept, proof::meaning_of(program_of(model(false))).whole);
}

// A slice of everything is its operand; its metadata may state a layout, or nothing.
TEST(NormalForm, OutputsKeepTheirLayouts) {
  const auto number = [](bool operand_has_one, const char* sharding) {
    spmd::Program program = program_of(parse_text(R"(<ir_version: 10, opset_import: ["" : 24]>
      m (float[4, 2] x) => (float[4, 2] y) {
        p = Relu (x)
        y = Slice (p, {0}, {4}, {0})
      })"));
    const TensorType whole{DType::float32, Shape{4, 4}};
    const auto placed = [&](const char* text) {
      return spmd::Placement{"y", whole, parse_sharding(text, *whole.shape, program.mesh, "y")};
    };
    program.placements[program.outputs[0].value] = placed(sharding);
    if (operand_has_one) program.placements[program.outputs[0].value->producer->input(0)] = placed("[tp, -]");
    const spmd::Program normal = normal_form(program);
    EXPECT_EQ(normal.graph->nodes().size(), 1u);
    return proof::meaning_of(normal).whole;
  };
  EXPECT_EQ(number(false, "[-, tp]"), number(true, "[-, tp]"));
  EXPECT_NE(number(true, "[tp, -]"), number(true, "[-, tp]"));
}

TEST(NormalForm, KeepsWhatComputesSomethingElseApart) {
  EXPECT_NE(normal_number("y = MatMul (x, w)"), normal_number("r = Relu (x)  y = MatMul (r, w)"));
  EXPECT_NE(normal_number("y = Gemm (x, w, c)"), normal_number("y = Gemm <alpha = 2.0> (x, w, c)"));
  EXPECT_NE(normal_number("y = Gemm (x, w, c)"), normal_number("y = MatMul (x, w)"));
}

}  // namespace
}  // namespace tessera::program_io
