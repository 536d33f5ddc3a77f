#include "tessera/rewrite/precision.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "rewrite/build.h"
#include "tessera/base/float16.h"
#include "tessera/ir/on_demand.h"
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

// A mask's lowest number stays finite with a score added to it, and what keeps a divisor from 0 stays above it.
TEST(LowerPrecision, constants_stay_within_the_type) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const DType type : {DType::float16, DType::bfloat16}) {
    OnnxModel model;
    Graph& graph = *model.graph;
    const std::vector<float> numbers = {-3.4028234e38F, 3.4028234e38F, 1e-42F, -1e-42F, 0, 1.5F, -kInfinity};
    Value* constant = graph.add_constant("c", Tensor::of<float>(DType::float32, {7}, numbers));
    graph.outputs = {node(graph, "Mul", {input(graph, "x", {"7"}), constant}, "y")};
    fold(model);
    lower_precision(model, type);
    const Tensor& made = graph.outputs[0]->producer->inputs[0]->producer->inputs[1]->data;
    ASSERT_EQ(made.dtype, type);
    std::vector<float> wide;
    for (uint16_t bits : made.as<uint16_t>()) {
      Float16 half;
      BFloat16 brain;
      half.bits = brain.bits = bits;
      wide.push_back(type == DType::float16 ? static_cast<float>(half) : static_cast<float>(brain));
    }
    EXPECT_LT(wide[0], -3e4F);
    EXPECT_GT(wide[0] * 1.5F, -kInfinity);
    EXPECT_EQ(wide[1], -wide[0]);
    if (type == DType::float16) {
      EXPECT_LE(wide[1], 65504 / 2 + 32);
    }
    EXPECT_GT(wide[2], 0);
    EXPECT_LT(wide[3], 0);
    EXPECT_EQ(wide[4], 0);
    EXPECT_EQ(wide[5], 1.5F);
    EXPECT_EQ(wide[6], -kInfinity);
  }
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

// What float32 nodes read keeps its value; where their results become narrow, what was finite stays so.
TEST(LowerPrecision, constants_of_float32_nodes_keep_their_value) {
  for (const DType type : {DType::float16, DType::bfloat16}) {
    OnnxModel model;
    Graph& graph = *model.graph;
    Value* ids = graph.add_input("ids", {DType::int64, Shape{3}});
    Value* positions = node(graph, "Cast", {ids}, "positions");
    positions->producer->set("to", static_cast<int64_t>(DType::float32));
    Value* large = graph.add_constant("large", Tensor::of<float>(DType::float32, {}, {1e6F}));
    Value* lowest = graph.add_constant("lowest", Tensor::of<float>(DType::float32, {}, {-3.4028234e38F}));
    Value* share = node(graph, "Div", {positions, large}, "share");
    Value* mask = node(graph, "Mul", {positions, lowest}, "mask");
    Value* x = input(graph, "x", {"3"});
    graph.outputs = {node(graph, "Add", {x, share}, "y"), node(graph, "Add", {x, mask}, "z")};
    fold(model);
    lower_precision(model, type);
    EXPECT_EQ(large->data.as<float>()[0], 1e6F);
    EXPECT_EQ(lowest->data.as<float>()[0], -3.4028234e38F);
    // z = x + Cast (Where (IsInf (mask), mask, Clip (mask))).
    const Node* add = graph.outputs[1]->producer->inputs[0]->producer;
    const Node* cast = add->inputs[1]->producer;
    ASSERT_TRUE(cast->is("Cast"));
    EXPECT_TRUE(cast->inputs[0]->producer->is("Where"));
  }
}

// Nobody holds a large parameter in both types: its elements are rounded where they are wanted, aligned or not.
TEST(LowerPrecision, rounds_large_parameters_on_demand) {
  constexpr int64_t kRows = 200, kColumns = 200;
  std::vector<float> elements(kRows * kColumns);
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<float>(i) * 1.001F - 7;
  std::vector<std::byte> shifted(elements.size() * sizeof(float) + 1);
  std::memcpy(shifted.data() + 1, elements.data(), elements.size() * sizeof(float));
  for (const bool is_aligned : {true, false}) {
    OnnxModel model;
    Graph& graph = *model.graph;
    Tensor data = Tensor::of<float>(DType::float32, {kRows, kColumns}, elements);
    if (!is_aligned) data.data = shifted.data() + 1;
    Value* w = graph.add_state("w", data);
    graph.outputs = {node(graph, "MatMul", {input(graph, "x", {"1", "200"}), w}, "y")};
    lower_precision(model, DType::bfloat16);
    const Tensor& narrow = graph.find("w")->data;
    EXPECT_EQ(narrow.dtype, DType::bfloat16);
    EXPECT_EQ(narrow.data, nullptr);
    ASSERT_NE(bytes_behind(narrow), nullptr);
    EXPECT_EQ(bytes_behind(narrow)->data, data.data);
    const Tensor made = made_whole(narrow);
    for (size_t i = 0; i < elements.size(); ++i)
      ASSERT_EQ(made.as<BFloat16>()[i].bits, BFloat16(elements[i]).bits) << i;
  }
}

// Nor does anybody hold a large parameter of 16 bits as float32 before its elements are wanted.
TEST(LowerPrecision, widens_large_parameters_on_demand) {
  constexpr int64_t kRows = 200, kColumns = 200;
  const auto test = [&]<typename T>(DType type, T) {
    std::vector<T> elements;
    for (int64_t i = 0; i < kRows * kColumns; ++i) elements.emplace_back(static_cast<float>(i) * 1.001F - 7);
    std::vector<std::byte> shifted(elements.size() * sizeof(T) + 1);
    std::memcpy(shifted.data() + 1, elements.data(), elements.size() * sizeof(T));
    for (const bool is_aligned : {true, false}) {
      Tensor data = Tensor::of<T>(type, {kRows, kColumns}, elements);
      if (!is_aligned) data.data = shifted.data() + 1;
      const Tensor wide = widened(data);
      EXPECT_EQ(wide.dtype, DType::float32);
      EXPECT_EQ(wide.data, nullptr);
      ASSERT_NE(bytes_behind(wide), nullptr);
      EXPECT_EQ(bytes_behind(wide)->data, data.data);
      const Tensor made = made_whole(wide);
      for (size_t i = 0; i < elements.size(); ++i) ASSERT_EQ(made.as<float>()[i], static_cast<float>(elements[i])) << i;
    }
    const Tensor small = widened(Tensor::of<T>(type, {2}, std::vector<T>{elements[5], elements[9]}));
    EXPECT_EQ(small.as<float>()[1], static_cast<float>(elements[9]));
  };
  test(DType::bfloat16, BFloat16());
  test(DType::float16, Float16());
}

}  // namespace
}  // namespace tessera::rewrite
