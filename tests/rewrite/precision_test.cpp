#include "tessera/rewrite/precision.h"

#include <gtest/gtest.h>

#include "rewrite/build.h"
#include "tessera/rewrite/passes.h"

namespace tessera::rewrite {
namespace {

TEST(LowerPrecision, scales_of_a_resize_stay_float32) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* scales = graph.add_constant("scales", Tensor::of<float>(DType::float32, {4}, {1, 1, 2, 2}));
  Value* y = node(graph, "Resize", {input(graph, "x", {"1", "2", "4", "4"}), nullptr, scales}, "y");
  graph.outputs = {y};
  fold(model);
  lower_precision(model, DType::bfloat16);
  const Node* resize = graph.outputs[0]->producer->inputs[0]->producer;
  ASSERT_TRUE(resize->is("Resize"));
  EXPECT_EQ(resize->inputs[0]->dtype(), DType::bfloat16);
  EXPECT_EQ(resize->inputs[2]->dtype(), DType::float32);
  EXPECT_EQ(to_string(graph.outputs[0]->shape()), "[1, 2, 8, 8]");
}

TEST(LowerPrecision, attributes_that_name_float32_follow) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"4", "4"});
  Value* eye = node(graph, "EyeLike", {x}, "", {{"dtype", int64_t{1}}});
  Value* other = node(graph, "EyeLike", {x}, "z", {{"dtype", int64_t{7}}});
  graph.outputs = {node(graph, "Add", {x, eye}, "y"), other};
  fold(model);
  lower_precision(model, DType::bfloat16);
  EXPECT_EQ(eye->dtype(), DType::bfloat16);
  EXPECT_EQ(other->dtype(), DType::int64);
  EXPECT_EQ(graph.outputs[0]->dtype(), DType::float32);
}

}  // namespace
}  // namespace tessera::rewrite
