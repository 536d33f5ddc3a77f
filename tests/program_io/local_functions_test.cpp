// Operators of our own domain as functions in ONNX's own operators: body and kernel give the same results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tessera/base/error.h"
#include "tessera/dialect/inline.h"
#include "tessera/program_io/lowering.h"
#include "tessera/runtime/executor.h"
#include "tessera/spmd/program.h"

namespace tessera::program_io {
namespace {

using Operands = std::vector<Tensor>;

// One node on constants; its function's body instead, if `inlined`.
Tensor run(const std::string& op, const Operands& operands, const std::vector<Attribute>& attributes, bool inlined) {
  const Mesh mesh;
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* x = graph.add_input("x", {operands[0].dtype, Shape(operands[0].dims.begin(), operands[0].dims.end())});
  std::vector<Value*> values = {x};
  for (size_t i = 1; i < operands.size(); ++i) values.push_back(graph.add_constant("", operands[i]));
  Node* node = graph.add_node(op, values, {"y"}, spmd::kLocalDomain);
  node->attributes = attributes;
  graph.outputs = {node->outputs[0]};
  if (inlined) {
    model.functions.push_back(local_function(*node));
    model.functions[0].name = node->op_type = "OnlyAFunction";
  }
  dialect::settle(model, mesh);
  fold_expression_nodes(graph, mesh, 0);
  auto program = std::make_shared<spmd::Program>();
  program->graph = std::move(model.graph);
  Value* y = program->graph->outputs[0];
  program->inputs = {{"x", x}};
  program->outputs = {{"y", y}};
  for (const Value* value : {x, y})
    program->placements[value] = {value->name, value->type, Sharding::replicated(value->shape())};
  return runtime::Executor(program, {}).run({{"x", operands[0]}}).at("y");
}

void expect_same(const std::string& op, const Operands& operands, const std::vector<Attribute>& attributes) {
  Tensor kernel = run(op, operands, attributes, false), body = run(op, operands, attributes, true);
  ASSERT_EQ(kernel.dtype, body.dtype);
  ASSERT_EQ(kernel.dims, body.dims);
  EXPECT_EQ(std::memcmp(kernel.data, body.data, kernel.bytes), 0);
}

Tensor floats(Dims dims) {
  std::vector<float> values(static_cast<size_t>(count_of(dims)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1) / 8;
  return Tensor::of(DType::float32, std::move(dims), values);
}

Tensor number(int64_t value) {
  return Tensor::of<int64_t>(DType::int64, {}, {value});
}

// Rows 4 to 6 of ten are here; indices count from the end, too.
TEST(LocalFunctions, gather_shard_takes_what_is_here) {
  for (int64_t axis : {0, 1, 2}) {
    Dims dims = {2, 5, 4};
    dims[static_cast<size_t>(axis)] = 3;
    for (const Tensor& indices : {Tensor::of<int64_t>(DType::int64, {2, 4}, {5, 0, -4, 9, 4, 6, -6, 3}), number(6)})
      expect_same("GatherShard", {floats(dims), indices, number(4), number(10)}, {{"axis", axis, ""}});
  }
  expect_same("GatherShard",
              {floats({3, 2}), Tensor::of<int32_t>(DType::int32, {3}, {5, 0, -4}), number(4), number(10)},
              {{"axis", int64_t{0}, ""}});
}

TEST(LocalFunctions, elements_of_a_shard_are_those_that_are_here) {
  const Tensor indices = Tensor::of<int64_t>(DType::int64, {2, 3}, {5, -4, 0, 9, -6, 4});
  for (int64_t columns : {3, 0})
    expect_same("GatherElementsShard", {floats({2, columns}), indices, number(4), number(10)},
                {{"axis", int64_t{1}, ""}});
  expect_same("GatherElementsShard", {floats({3, 3}), indices, number(4), number(10)}, {{"axis", int64_t{0}, ""}});
}

TEST(LocalFunctions, points_of_a_shard_are_those_that_are_here) {
  const Tensor points = Tensor::of<int64_t>(DType::int64, {2, 3, 2}, {0, 5, -2, -4, 1, 1, 2, 9, -3, -6, 1, 4});
  const Tensor offsets = Tensor::of<int64_t>(DType::int64, {2}, {1, 4}),
               whole = Tensor::of<int64_t>(DType::int64, {2}, {3, 10});
  for (int64_t columns : {3, 0}) {
    expect_same("GatherNDShard", {floats({2, columns, 2}), points, offsets, whole}, {{"batch_dims", int64_t{0}, ""}});
    expect_same("GatherNDShard", {floats({2, 2, columns}), points, offsets, whole}, {{"batch_dims", int64_t{1}, ""}});
  }
}

TEST(LocalFunctions, a_shard_takes_its_updates) {
  const Tensor indices = Tensor::of<int64_t>(DType::int64, {2, 3}, {5, -4, 0, 9, -6, 4}), updates = floats({2, 3});
  for (const std::string reduction : {"none", "add"})
    for (int64_t columns : {3, 0}) {
      expect_same("ScatterElementsShard", {floats({2, columns}), indices, updates, number(4), number(10)},
                  {{"axis", int64_t{1}, ""}, {"reduction", reduction, ""}});
      const Tensor points = Tensor::of<int64_t>(DType::int64, {3, 2}, {0, 5, -2, -4, 1, 1});
      expect_same("ScatterNDShard",
                  {floats({2, columns, 2}), points, floats({3, 2}), Tensor::of<int64_t>(DType::int64, {2}, {1, 4}),
                   Tensor::of<int64_t>(DType::int64, {2}, {3, 10})},
                  {{"reduction", reduction, ""}});
    }
}

TEST(LocalFunctions, sums_of_16_bit_products_stay_float32) {
  auto half = [](Dims dims) {
    std::vector<uint16_t> bits(static_cast<size_t>(count_of(dims)));
    for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(0x3f80 + 0x10 * (i % 5));  // bfloat16
    return Tensor::of(DType::bfloat16, std::move(dims), bits);
  };
  expect_same("MatMul", {half({3, 4}), half({4, 2})}, {{"accumulate", std::string("float32"), ""}});
}

TEST(LocalFunctions, what_has_no_body_is_refused_by_name) {
  Node node;
  node.op_type = "Conv";
  node.domain = spmd::kLocalDomain;
  node.name = "first";
  try {
    local_function(node);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("'first'"), testing::HasSubstr("`lower=collectives`")));
  }
}

}  // namespace
}  // namespace tessera::program_io
