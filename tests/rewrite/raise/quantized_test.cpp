#include <gtest/gtest.h>

#include "rewrite/build.h"
#include "tessera/rewrite/passes.h"

namespace tessera::rewrite {
namespace {

using Histogram = std::map<std::string, int>;

class RaiseQuantized : public testing::Test {
 protected:
  Value* weight(std::string_view name, DType dtype, Dims dims) {
    return graph.add_state(name, Tensor::zeros(dtype, std::move(dims)));
  }
  Value* dequantized(Value* codes, Value* scale, Value* zero = nullptr, std::vector<Attribute> attributes = {}) {
    return node(graph, "DequantizeLinear", {codes, scale, zero}, "", std::move(attributes));
  }
  Value* activation(DType dtype = DType::uint8) {
    return dequantized(input(graph, "x", {"batch", "64"}, dtype), number(graph, 0.5), graph.constant_scalar(dtype, 3));
  }

  Histogram raised(Value* output) {
    graph.outputs = {output};
    fold(model);
    raise_quantized(model);
    graph.verify("test");
    return histogram(graph);
  }

  OnnxModel model;
  Graph& graph = *model.graph;
};

TEST_F(RaiseQuantized, product_of_bytes) {
  Value* w = dequantized(weight("w", DType::int8, {64, 8}), number(graph, 0.25));
  EXPECT_EQ(raised(node(graph, "MatMul", {activation(), w})),
            (Histogram{{"Cast", 1}, {"MatMulInteger", 1}, {"Mul", 2}}));
}

TEST_F(RaiseQuantized, product_with_a_scale_per_column) {
  Value* w = dequantized(weight("w", DType::int8, {64, 8}), state(graph, "s", {8}), weight("z", DType::int8, {8}),
                         {{"axis", int64_t{-1}}});
  EXPECT_EQ(raised(node(graph, "MatMul", {activation(DType::int8), w})),
            (Histogram{{"Cast", 1}, {"MatMulInteger", 1}, {"Mul", 2}}));
}

TEST_F(RaiseQuantized, gemm_with_a_turned_weight_and_a_bias) {
  Value* w = dequantized(weight("w", DType::int8, {8, 64}), state(graph, "s", {8}), nullptr, {{"axis", int64_t{0}}});
  EXPECT_EQ(raised(node(graph, "Gemm", {activation(), w, state(graph, "bias", {8})}, "", {{"transB", int64_t{1}}})),
            (Histogram{{"Add", 1}, {"Cast", 1}, {"MatMulInteger", 1}, {"Mul", 2}, {"Transpose", 1}}));
}

TEST_F(RaiseQuantized, a_scale_per_row_of_the_weight_stays_outside) {
  Value* w = dequantized(weight("w", DType::int8, {64, 8}), state(graph, "s", {64}), nullptr, {{"axis", int64_t{0}}});
  EXPECT_EQ(raised(node(graph, "MatMul", {activation(), w})), (Histogram{{"DequantizeLinear", 2}, {"MatMul", 1}}));
}

TEST_F(RaiseQuantized, a_float_operand_multiplies_codes_with_one_scale) {
  Value* w = dequantized(weight("w", DType::uint8, {64, 8}), number(graph, 0.25));
  EXPECT_EQ(raised(node(graph, "MatMul", {input(graph, "x", {"batch", "64"}), w})), (Histogram{{"MatMulBlocks", 1}}));
  const Node& product = *graph.outputs[0]->producer;
  EXPECT_EQ(product.find_attribute("transB"), nullptr);
  EXPECT_EQ(product.input(3)->dtype(), DType::uint8);  // codes without a sign get the zero point that they mean
}

TEST_F(RaiseQuantized, a_float_operand_multiplies_codes_with_a_scale_per_column) {
  Value* w = dequantized(weight("w", DType::int4, {64, 8}), state(graph, "s", {8}));
  EXPECT_EQ(raised(node(graph, "MatMul", {input(graph, "x", {"batch", "64"}), w})), (Histogram{{"MatMulBlocks", 1}}));
}

TEST_F(RaiseQuantized, a_float_operand_keeps_codes_with_a_scale_per_row) {
  Value* w = dequantized(weight("w", DType::int8, {64, 8}), state(graph, "s", {64}), nullptr, {{"axis", int64_t{0}}});
  EXPECT_EQ(raised(node(graph, "MatMul", {input(graph, "x", {"batch", "64"}), w})),
            (Histogram{{"DequantizeLinear", 1}, {"MatMul", 1}}));
}

TEST_F(RaiseQuantized, a_tied_table_is_read_as_codes_turned_and_by_rows) {
  Value* table = weight("w", DType::int8, {80, 16});
  Value* rows = node(graph, "Gather", {dequantized(table, number(graph, 0.5)), input(graph, "i", {"n"}, DType::int64)});
  rows = node(graph, "Relu", {rows});
  Value* turned = node(graph, "Transpose", {table}, "", {{"perm", std::vector<int64_t>{1, 0}}});
  EXPECT_EQ(raised(node(graph, "MatMul", {rows, dequantized(turned, number(graph, 0.5))})),
            (Histogram{{"DequantizeLinear", 1}, {"Gather", 1}, {"MatMulBlocks", 1}, {"Relu", 1}}));
  EXPECT_EQ(chain_to(graph.outputs[0]),
            (std::vector<std::string>{"MatMulBlocks", "Relu", "DequantizeLinear", "Gather"}));
  EXPECT_EQ(graph.outputs[0]->producer->input(1), table);
  EXPECT_EQ(graph.outputs[0]->producer->get_int("transB", 0), 1);
}

TEST_F(RaiseQuantized, a_turned_weight_has_its_scales_beside_its_columns) {
  Value* w = dequantized(weight("w", DType::int8, {8, 64}), state(graph, "s", {8}), nullptr, {{"axis", int64_t{0}}});
  Value* turned = node(graph, "Transpose", {w}, "", {{"perm", std::vector<int64_t>{1, 0}}});
  EXPECT_EQ(raised(node(graph, "MatMul", {input(graph, "x", {"batch", "64"}), turned})),
            (Histogram{{"MatMulBlocks", 1}}));
}

TEST_F(RaiseQuantized, scales_along_the_gathered_dimension_are_gathered) {
  Value* w = dequantized(weight("w", DType::uint8, {80, 16}), state(graph, "s", {80}), weight("z", DType::uint8, {80}),
                         {{"axis", int64_t{0}}});
  EXPECT_EQ(raised(node(graph, "Gather", {w, input(graph, "i", {"a", "b"}, DType::int64)})),
            (Histogram{{"DequantizeLinear", 1}, {"Gather", 3}, {"Reshape", 2}}));
}

TEST_F(RaiseQuantized, scales_along_other_dimensions_move_with_them) {
  Value* w = dequantized(weight("w", DType::int8, {80, 32}), state(graph, "s", {32}));
  Value* y = node(graph, "Gather", {w, input(graph, "i", {"a", "b"}, DType::int64)});
  EXPECT_EQ(raised(y), (Histogram{{"DequantizeLinear", 1}, {"Gather", 1}}));
  EXPECT_EQ(graph.outputs[0]->producer->get_int("axis", 1), 2);
}

TEST_F(RaiseQuantized, blocks_are_gathered_with_their_rows) {
  Value* w = dequantized(weight("w", DType::int8, {80, 32}), state(graph, "s", {80, 2}), nullptr,
                         {{"axis", int64_t{1}}, {"block_size", int64_t{16}}});
  Value* y = node(graph, "Gather", {w, input(graph, "i", {"a", "b"}, DType::int64)});
  EXPECT_EQ(raised(y), (Histogram{{"DequantizeLinear", 1}, {"Gather", 2}}));
  EXPECT_EQ(graph.outputs[0]->producer->get_int("axis", 1), 2);
}

TEST_F(RaiseQuantized, rows_of_four_bits_are_gathered_if_they_fill_bytes) {
  Value* w = dequantized(weight("w", DType::int4, {80, 32}), state(graph, "s", {80, 2}), nullptr,
                         {{"axis", int64_t{1}}, {"block_size", int64_t{16}}});
  Value* y = node(graph, "Gather", {w, input(graph, "i", {"a", "b"}, DType::int64)});
  EXPECT_EQ(raised(y), (Histogram{{"DequantizeLinear", 1}, {"Gather", 2}}));
  EXPECT_EQ(graph.outputs[0]->producer->op_type, "DequantizeLinear");
}

TEST_F(RaiseQuantized, rows_that_share_a_byte_stay) {
  Value* w = dequantized(weight("w", DType::int4, {80, 33}), state(graph, "s", {}));
  Value* y = node(graph, "Gather", {w, input(graph, "i", {"a", "b"}, DType::int64)});
  EXPECT_EQ(raised(y), (Histogram{{"DequantizeLinear", 1}, {"Gather", 1}}));
  EXPECT_EQ(graph.outputs[0]->producer->op_type, "Gather");
}

TEST_F(RaiseQuantized, blocks_along_the_gathered_dimension_stay) {
  Value* w = dequantized(weight("w", DType::int8, {80, 32}), state(graph, "s", {5, 32}), nullptr,
                         {{"axis", int64_t{0}}, {"block_size", int64_t{16}}});
  Value* y = node(graph, "Gather", {w, input(graph, "i", {"a", "b"}, DType::int64)});
  EXPECT_EQ(raised(y), (Histogram{{"DequantizeLinear", 1}, {"Gather", 1}}));
  EXPECT_EQ(graph.outputs[0]->producer->op_type, "Gather");
}

// 33025 · 255 · 255 is below 2^31, and 33026 · 255 · 255 is not.
TEST_F(RaiseQuantized, sums_that_could_wrap_around_stay_of_floats) {
  for (const int64_t depth : {int64_t{33025}, int64_t{33026}})
    for (const bool turned : {false, true}) {
      SCOPED_TRACE(testing::Message() << depth << (turned ? " turned" : ""));
      OnnxModel product;
      Graph& g = *product.graph;
      Value* codes = input(g, "x", {"batch", std::to_string(depth)}, DType::uint8);
      Value* w = g.add_state("w", Tensor::zeros(DType::uint8, turned ? Dims{2, depth} : Dims{depth, 2}));
      Value* left = node(g, "DequantizeLinear", {codes, number(g, 0.5)});
      Value* right = node(g, "DequantizeLinear", {w, number(g, 0.25)});
      g.outputs = {node(g, turned ? "Gemm" : "MatMul", {left, right}, "", {{"transB", int64_t{turned}}})};
      if (!turned) g.outputs[0]->producer->attributes.clear();
      fold(product);
      raise_quantized(product);
      EXPECT_EQ(histogram(g).contains("MatMulInteger"), depth == 33025);
      EXPECT_EQ(histogram(g).contains("DequantizeLinear"), depth == 33026);
    }
}

TEST_F(RaiseQuantized, a_product_of_two_activations_of_unknown_depth_stays) {
  Value* left = dequantized(input(graph, "a", {"n", "m"}, DType::uint8), number(graph, 0.5));
  Value* right = dequantized(input(graph, "b", {"m", "n"}, DType::uint8), number(graph, 0.5));
  EXPECT_EQ(raised(node(graph, "MatMul", {left, right})), (Histogram{{"DequantizeLinear", 2}, {"MatMul", 1}}));
}

TEST_F(RaiseQuantized, blocks_of_a_weight) {
  for (const DType dtype : {DType::uint8, DType::int4}) {
    const std::string name(name_of(dtype));
    Value* w = dequantized(weight(name, dtype, {64, 8}), state(graph, "s" + name, {2, 8}),
                           weight("z" + name, dtype, {2, 8}), {{"axis", int64_t{0}}, {"block_size", int64_t{32}}});
    EXPECT_EQ(raised(node(graph, "MatMul", {input(graph, "x" + name, {"batch", "64"}), w})),
              (Histogram{{"MatMulBlocks", 1}}));
  }
}

TEST_F(RaiseQuantized, blocks_of_codes_without_a_sign_and_zero_points_stay) {
  Value* w = dequantized(weight("w", DType::uint8, {64, 8}), state(graph, "s", {2, 8}), nullptr,
                         {{"axis", int64_t{0}}, {"block_size", int64_t{32}}});
  EXPECT_EQ(raised(node(graph, "MatMul", {input(graph, "x", {"batch", "64"}), w})),
            (Histogram{{"DequantizeLinear", 1}, {"MatMul", 1}}));
}

TEST_F(RaiseQuantized, convolution_of_bytes) {
  Value* x = dequantized(input(graph, "x", {"n", "3", "8", "8"}, DType::uint8), number(graph, 0.5),
                         graph.constant_scalar(DType::uint8, 128));
  Value* w =
      dequantized(weight("w", DType::int8, {4, 3, 3, 3}), state(graph, "s", {4}), nullptr, {{"axis", int64_t{0}}});
  EXPECT_EQ(raised(node(graph, "Conv", {x, w, state(graph, "bias", {4})})),
            (Histogram{{"Add", 1}, {"Cast", 1}, {"ConvInteger", 1}, {"Mul", 2}, {"Reshape", 2}}));
}

TEST_F(RaiseQuantized, a_scale_per_input_channel_keeps_the_convolution) {
  Value* x = dequantized(input(graph, "x", {"n", "3", "8", "8"}, DType::uint8), number(graph, 0.5));
  Value* w =
      dequantized(weight("w", DType::int8, {4, 3, 3, 3}), state(graph, "s", {3}), nullptr, {{"axis", int64_t{1}}});
  EXPECT_EQ(raised(node(graph, "Conv", {x, w})), (Histogram{{"Conv", 1}, {"DequantizeLinear", 2}}));
}

// The largest number has the largest code, and movements keep codes, so that codes need not become floats between.
TEST_F(RaiseQuantized, maxima_and_movements_of_codes) {
  for (const bool equal : {true, false}) {
    OnnxModel pooling;
    Graph& g = *pooling.graph;
    Value *scale = number(g, 0.5), *zero = g.constant_scalar(DType::uint8, 3);
    Value* x = node(g, "DequantizeLinear", {input(g, "x", {"n", "3", "8", "8"}, DType::uint8), scale, zero});
    Value* most = node(g, "MaxPool", {x}, "", {{"kernel_shape", std::vector<int64_t>{2, 2}}});
    Value* turned = node(g, "Transpose", {most}, "", {{"perm", std::vector<int64_t>{0, 2, 3, 1}}});
    g.outputs = {node(g, "QuantizeLinear", {turned, number(g, equal ? 0.5 : 0.25), zero})};
    fold(pooling);
    raise_quantized(pooling);
    g.verify("test");
    Histogram left{{"MaxPool", 1}, {"Transpose", 1}};
    if (!equal) left["DequantizeLinear"] = left["QuantizeLinear"] = 1;
    EXPECT_EQ(histogram(g), left);
    EXPECT_EQ(g.outputs[0]->dtype(), DType::uint8);
  }
}

// Steps in another type round otherwise, and may overflow.
TEST_F(RaiseQuantized, steps_in_another_type_than_their_scale_stay) {
  const std::vector<Attribute> half = {{"output_dtype", static_cast<int64_t>(DType::float16)}};
  const auto of = [&](const char* name, std::vector<std::string> dims) {
    return dequantized(input(graph, name, std::move(dims), DType::uint8), number(graph, 0.5), nullptr, half);
  };
  graph.outputs = {node(graph, "Transpose", {of("t", {"4", "8"})}),
                   node(graph, "MatMul", {of("a", {"4", "8"}), of("b", {"8", "4"})}),
                   node(graph, "Conv", {of("x", {"1", "3", "8", "8"}), of("w", {"2", "3", "3", "3"})}),
                   node(graph, "QuantizeLinear", {of("q", {"4", "8"}), number(graph, 0.5)})};
  fold(model);
  raise_quantized(model);
  graph.verify("test");
  EXPECT_EQ(histogram(graph),
            (Histogram{{"DequantizeLinear", 6}, {"Transpose", 1}, {"MatMul", 1}, {"Conv", 1}, {"QuantizeLinear", 1}}));
}

TEST_F(RaiseQuantized, maxima_stay_of_floats_if_the_scale_may_be_negative) {
  Value* x = dequantized(input(graph, "x", {"n", "3", "8", "8"}, DType::uint8), input(graph, "s", {}));
  Value* most = node(graph, "MaxPool", {x}, "", {{"kernel_shape", std::vector<int64_t>{2, 2}}});
  EXPECT_EQ(raised(most), (Histogram{{"DequantizeLinear", 1}, {"MaxPool", 1}}));
  EXPECT_EQ(graph.outputs[0]->producer->op_type, "MaxPool");
}

TEST_F(RaiseQuantized, nodes_without_results_are_passed_by) {
  graph.add_node("Outputs", {input(graph, "x", {"8"})}, {}, "tessera.flow");
  EXPECT_NO_THROW(raise_quantized(model));
}

}  // namespace
}  // namespace tessera::rewrite
