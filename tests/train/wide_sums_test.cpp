#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/ir/text.h"
#include "tessera/ops/op.h"
#include "tessera/train/step.h"

namespace tessera::train {
namespace {

using testing::ElementsAre;

// Each product that makes a weight's gradient, in float32, comes before the backward pass goes on to the layers before:
// the operands, which are as large as activations, are not held until the pass ends.
TEST(WideSums, are_made_where_the_backward_pass_reads_their_operands) {
  OnnxModel model = parse_text(
      "<ir_version: 10, opset_import: [\"\" : 24]>\n"
      "m (float[8, 4] x) => (float[8, 4] y) <float[4, 4] u, float[4, 4] v, float[4, 4] w> {\n"
      "  a = MatMul (x, u)\n  b = Tanh (a)\n  c = MatMul (b, v)\n  d = Tanh (c)\n  y = MatMul (d, w)\n"
      "}\n");
  ops::infer_types(*model.graph);
  for (Value* state : model.graph->values_of(ValueKind::state)) state->data = Tensor::zeros(DType::float32, {4, 4});
  StepOptions options;
  options.loss = "mse";
  options.compute = DType::bfloat16;
  const Step step = make_step(model, options);
  std::vector<std::string> products;
  for (const auto& node : step.model.graph->nodes())
    if (node->op_type == "MatMul") products.emplace_back(name_of(node->output()->dtype()));
  EXPECT_THAT(products, ElementsAre("bfloat16", "bfloat16", "bfloat16",  // forward
                                    "bfloat16", "float32",               // the gradients of d and w
                                    "bfloat16", "float32",               // of b and v
                                    "float32"));                         // of u
}

}  // namespace
}  // namespace tessera::train
