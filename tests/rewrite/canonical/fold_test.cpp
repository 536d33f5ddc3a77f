#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "rewrite/build.h"
#include "tessera/base/error.h"
#include "tessera/rewrite/passes.h"

namespace tessera::rewrite {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Fold, shape_chain_becomes_an_expression) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"batch", "sequence", "96"});
  Value* rows = node(graph, "Gather", {node(graph, "Shape", {x}), integer(graph, 0)});
  Value* shape = node(graph, "Concat", {node(graph, "Unsqueeze", {rows, ints(graph, {0})}), ints(graph, {-1})}, "",
                      {{"axis", int64_t{0}}});
  Value* y = node(graph, "Reshape", {x, shape}, "y");
  graph.outputs = {y};
  fold(model);
  graph.verify("test");
  EXPECT_EQ(histogram(graph), (std::map<std::string, int>{{"Reshape", 1}}));
  EXPECT_EQ(to_string(*y->producer->inputs[1]->content), "[batch, -1]");
  EXPECT_EQ(to_string(y->shape()), "[batch, 96*sequence]");
}

TEST(Fold, constants_of_all_spellings_become_values) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* axes = node(graph, "Constant", {}, "axes", {{"value_ints", std::vector<int64_t>{0}}});
  Value* half = node(graph, "Constant", {}, "half", {{"value_float", 0.5f}});
  Value* y = node(graph, "Mul", {node(graph, "Unsqueeze", {input(graph, "x", {"4"}), axes}), half}, "y");
  graph.outputs = {y};
  fold(model);
  EXPECT_EQ(histogram(graph), (std::map<std::string, int>{{"Unsqueeze", 1}, {"Mul", 1}}));
  EXPECT_EQ(y->producer->inputs[1]->data.as<float>()[0], 0.5f);
}

TEST(Fold, a_result_that_the_operator_does_not_have_is_an_error) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Node* two = graph.add_node("Relu", {input(graph, "x", {"4"})}, {"y", "z"});
  two->outputs[1]->type = two->inputs[0]->type;  // as the file declares it
  graph.outputs = {two->outputs[1]};
  try {
    fold(model);
    FAIL() << "z is nobody's result";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    EXPECT_THAT(error.what(), HasSubstr("a result 2, 'z', which Relu does not give"));
  }
}

TEST(Fold, a_constant_may_be_an_output) {
  OnnxModel model;
  Graph& graph = *model.graph;
  graph.outputs = {node(graph, "Constant", {}, "y", {{"value_float", 0.5f}})};
  fold(model);
  graph.verify("test");
  EXPECT_EQ(histogram(graph), (std::map<std::string, int>{{"Identity", 1}}));
  EXPECT_EQ(graph.outputs[0]->name, "y");
}

// Whoever else reads a shape, operators that need to know it do.
TEST(Fold, what_shapes_are_computed_with_may_be_an_output) {
  for (const char* made_by : {"Shape", "Constant", "Identity"}) {
    OnnxModel model;
    Graph& graph = *model.graph;
    Value* x = input(graph, "x", {"batch", "4"});
    Value* shape = nullptr;
    if (std::string_view(made_by) == "Shape")
      shape = node(graph, "Shape", {x}, "shape");
    else if (std::string_view(made_by) == "Constant")
      shape = node(graph, "Constant", {}, "shape", {{"value_ints", std::vector<int64_t>{2, -1}}});
    else
      shape = node(graph, "Identity", {ints(graph, {2, -1})}, "shape");
    Value* y = node(graph, "Reshape", {x, shape}, "y");
    graph.outputs = {y, shape};
    fold(model);
    graph.verify("test");
    EXPECT_NE(y->producer->inputs[1]->kind, ValueKind::result) << made_by;
    EXPECT_EQ(graph.outputs[1]->name, "shape") << made_by;
    EXPECT_EQ(graph.outputs[1]->producer->op_type, "Identity") << made_by;
  }
}

// PaddleOCR and silero keep their weights so.
TEST(Fold, a_large_floating_constant_is_a_state_of_its_name) {
  OnnxModel model;
  Graph& graph = *model.graph;
  auto constant = [&](std::string_view name, Tensor data) {
    return node(graph, "Constant", {}, name, {{"value", std::move(data)}});
  };
  std::vector<float> numbers(72);
  std::iota(numbers.begin(), numbers.end(), 0.0F);
  Value* weight = constant("weight", Tensor::of(DType::float32, {8, 9}, numbers));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = i % 9 > i / 9 ? -INFINITY : 0.0F;
  Value* mask = constant("mask", Tensor::of(DType::float32, {8, 9}, numbers));
  Value* half = constant("half", Tensor::zeros(DType::float16, {65}));
  Value* scale = constant("scale", Tensor::zeros(DType::float32, {8}));
  Value* table = constant("table", Tensor::zeros(DType::int64, {72}));
  Value* y = node(graph, "Mul", {node(graph, "Add", {input(graph, "x", {"b", "8"}), scale}), scale}, "scaled");
  graph.outputs = {node(graph, "MatMul", {y, weight}, "y"), node(graph, "Neg", {mask}, "m"),
                   node(graph, "Identity", {half}, "z"),
                   node(graph, "Gather", {table, input(graph, "i", {"b"}, DType::int64)}, "t")};
  fold(model);
  graph.verify("test");
  EXPECT_EQ(graph.find("weight")->kind, ValueKind::state);
  EXPECT_EQ(graph.find("half")->kind, ValueKind::state);
  EXPECT_EQ(graph.values_of(ValueKind::state).size(), 2U);
  EXPECT_EQ(graph.values_of(ValueKind::constant).size(), 3U) << "a scale, a table of integers, and a mask";
}

TEST(Fold, cast_of_a_float_scalar_lets_range_know_its_length) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"batch", "sequence"});
  Value* length = node(graph, "Squeeze", {node(graph, "Shape", {x}, "", {{"start", int64_t{1}}})});
  Value* zero = node(graph, "CastLike", {number(graph, 0), length});
  Value* one = node(graph, "CastLike", {number(graph, 1), length});
  Value* y = node(graph, "Range", {zero, length, one}, "y");
  graph.outputs = {y};
  fold(model);
  EXPECT_EQ(to_string(y->shape()), "[sequence]");
  EXPECT_EQ(y->dtype(), DType::int64);
}

TEST(Fold, paddings_turned_around_as_a_matrix_are_known) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"batch", "3", "8", "width"});
  Value* width = node(graph, "Shape", {x}, "", {{"start", int64_t{3}}});
  // PyTorch's [left, right, top, bottom], then zeros for the other dimensions.
  Value* pads =
      node(graph, "Concat", {ints(graph, {1}), width, ints(graph, {2, 3, 0, 0, 0, 0})}, "", {{"axis", int64_t{0}}});
  Value* pairs = node(graph, "Reshape", {pads, ints(graph, {-1, 2})});
  Value* turned = node(graph, "Slice",
                       {pairs, ints(graph, {-1}), ints(graph, {INT64_MIN + 1}), ints(graph, {0}), ints(graph, {-1})});
  Value* columns = node(graph, "Transpose", {turned}, "", {{"perm", std::vector<int64_t>{1, 0}}});
  Value* y = node(
      graph, "Pad",
      {x, node(graph, "Cast", {node(graph, "Reshape", {columns, ints(graph, {-1})})}, "", {{"to", int64_t{7}}})}, "y");
  graph.outputs = {y};
  fold(model);
  EXPECT_EQ(to_string(*y->producer->inputs[1]->content), "[0, 0, 2, 1, 0, 0, 3, width]");
  EXPECT_EQ(histogram(graph), (std::map<std::string, int>{{"Pad", 1}}));
}

TEST(Fold, repeats_chosen_by_a_one_hot_are_known) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* hot = node(graph, "OneHot", {ints(graph, {1}), integer(graph, 3), ints(graph, {1, 4})});
  Value* y =
      node(graph, "Tile", {input(graph, "x", {"2", "3", "5"}), node(graph, "Reshape", {hot, ints(graph, {-1})})}, "y");
  graph.outputs = {y};
  fold(model);
  EXPECT_EQ(to_string(y->shape()), "[2, 12, 5]");
}

TEST(Fold, sizes_rounded_as_floats_are_known) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* x = input(graph, "x", {"batch", "7"});
  Value* columns = node(graph, "Gather", {node(graph, "Shape", {x}), integer(graph, 1)});
  Value* half = node(graph, "Div", {node(graph, "Cast", {columns}, "", {{"to", int64_t{1}}}), number(graph, 2)});
  Value* up = node(graph, "Cast", {node(graph, "Ceil", {half})}, "", {{"to", int64_t{7}}});
  Value* y = node(graph, "ConstantOfShape", {node(graph, "Unsqueeze", {up, ints(graph, {0})})}, "y");
  graph.outputs = {y};
  fold(model);
  EXPECT_EQ(to_string(y->shape()), "[4]");
}

TEST(Fold, known_output_stays_a_result_under_its_name) {
  OnnxModel model;
  Graph& graph = *model.graph;
  graph.outputs = {node(graph, "Shape", {input(graph, "x", {"batch", "4"})}, "extents")};
  fold(model);
  graph.verify("test");
  EXPECT_EQ(histogram(graph), (std::map<std::string, int>{{"Identity", 1}}));
  EXPECT_EQ(graph.outputs[0]->name, "extents");
  EXPECT_EQ(to_string(*graph.outputs[0]->producer->inputs[0]->content), "[batch, 4]");
}

TEST(Fold, states_are_never_folded) {
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* weight = state(graph, "w", {1, 1});
  graph.outputs = {node(graph, "Sqrt", {weight}, "y")};
  fold(model);
  EXPECT_EQ(histogram(graph), (std::map<std::string, int>{{"Sqrt", 1}}));
}

TEST(Fold, unknown_operator_is_named) {
  OnnxModel model;
  node(*model.graph, "Frobnicate", {input(*model.graph, "x", {"4"})}, "y");
  EXPECT_THAT([&] { fold(model); }, testing::ThrowsMessage<Error>(HasSubstr("Frobnicate producing 'y'")));
}

/// The constant that an operator on constants becomes; dtype undefined where it stays.
Tensor folded(std::string_view type, const std::vector<Tensor>& operands, std::vector<Attribute> attributes = {}) {
  OnnxModel model;
  Graph& graph = *model.graph;
  std::vector<Value*> values;
  for (const Tensor& operand : operands) values.push_back(graph.add_constant("c", operand));
  Value* y = node(graph, type, values, "y", std::move(attributes));
  graph.outputs = {node(graph, "Shape", {y}), node(graph, "Identity", {y}, "z")};
  fold(model);
  const Node* last = graph.find("z")->producer;
  return last->is("Identity") && last->inputs[0]->kind == ValueKind::constant ? last->inputs[0]->data : Tensor{};
}

Attribute to(DType dtype) {
  return {"to", static_cast<int64_t>(dtype), ""};
}

template <typename T>
Tensor one(DType dtype, T element, Dims dims = {}) {
  return Tensor::of<T>(dtype, std::move(dims), {element});
}

TEST(Fold, cast_to_bool_asks_whether_it_is_zero) {
  for (const Dims& dims : {Dims{}, Dims{1, 1, 1}})
    for (auto [number, truth] : std::vector<std::pair<float, int64_t>>{{0.5f, 1}, {-0.0f, 0}, {-3, 1}, {NAN, 1}})
      EXPECT_THAT(folded("Cast", {one(DType::float32, number, dims)}, {to(DType::boolean)}).to_int64(),
                  ElementsAre(truth))
          << number;
}

Tensor floats(std::vector<float> elements) {
  return Tensor::of<float>(DType::float32, {static_cast<int64_t>(elements.size())}, elements);
}

// As models compute the size of an image from another's, by way of floats.
TEST(Fold, short_lists_of_floats_are_computed) {
  const auto elements = [](const Tensor& tensor) {
    const auto of = tensor.dtype == DType::float32 ? tensor.as<float>() : std::span<const float>();
    return std::vector<float>(of.begin(), of.end());
  };
  const Tensor half = one(DType::float32, 0.5F);
  EXPECT_THAT(elements(folded("Mul", {floats({2, 3}), half})), ElementsAre(1, 1.5F));
  EXPECT_THAT(elements(folded("Sub", {half, floats({2, 3})})), ElementsAre(-1.5F, -2.5F));
  EXPECT_THAT(elements(folded("Min", {floats({2, 3}), floats({5, 1}), half})), ElementsAre(0.5F, 0.5F));
  EXPECT_THAT(elements(folded("Max", {floats({2, NAN}), half})), ElementsAre(2, testing::IsNan()));
  EXPECT_THAT(elements(folded("Round", {floats({0.5F, 1.5F, -2.5F})})), ElementsAre(0, 2, -2));
  EXPECT_THAT(elements(folded("Concat", {floats({1}), floats({2, 3})}, {{"axis", int64_t{0}, ""}})),
              ElementsAre(1, 2, 3));
  EXPECT_THAT(elements(folded("ReduceMax", {floats({1, 4, 3})})), ElementsAre(4));
  const Tensor sum = folded("ReduceSum", {floats({1, 4, 3})}, {{"keepdims", int64_t{0}, ""}});
  EXPECT_THAT(elements(sum), ElementsAre(8));
  EXPECT_EQ(sum.dims, Dims{});
  const Tensor zero = Tensor::of<int64_t>(DType::int64, {1}, {0});
  EXPECT_EQ(folded("Unsqueeze", {half, zero}).dims, Dims{1});
  EXPECT_EQ(folded("Squeeze", {floats({2}), zero}).dims, Dims{});
  EXPECT_THAT(folded("Cast", {floats({2.9F, -1.2F})}, {to(DType::int64)}).to_int64(), ElementsAre(2, -1));
}

// Without elements, nothing would say that an operator is one of those that are known.
TEST(Fold, empty_lists_are_only_cast_and_joined) {
  const Tensor empty = floats({}), two = floats({1, 2}), one_number = one(DType::float32, 1.0F);
  for (const char* type : {"Equal", "Add", "Mul"})
    for (const auto& operands : {std::vector{empty, empty}, {empty, one_number}, {one_number, empty}})
      EXPECT_EQ(folded(type, operands).dtype, DType::undefined) << type;
  EXPECT_EQ(folded("MatMul", {empty, empty}).dtype, DType::undefined);
  for (const char* type : {"IsNaN", "ReduceMean", "ReduceMax", "Neg"})
    EXPECT_EQ(folded(type, {empty}).dtype, DType::undefined) << type;
  EXPECT_EQ(folded("Concat", {empty, two}, {{"axis", int64_t{0}, ""}}).dims, Dims{2});
  EXPECT_EQ(folded("Cast", {empty}, {to(DType::int64)}).dims, Dims{0});
}

TEST(Fold, large_integers_are_cast_exactly_or_not_at_all) {
  Tensor large = folded("Cast", {one<uint64_t>(DType::uint64, uint64_t{1} << 63)}, {to(DType::float32)});
  EXPECT_TRUE(large.dtype == DType::undefined || large.as<float>()[0] == 0x1p63f);
  Tensor small = folded("Cast", {one<uint64_t>(DType::uint64, 7)}, {to(DType::float32)});
  EXPECT_EQ(small.as<float>()[0], 7);
}

TEST(Fold, narrowing_cast_of_a_known_matrix_is_left_to_run) {
  const Tensor wide = Tensor::of<int64_t>(DType::int64, {2}, {300, -1});
  EXPECT_EQ(folded("Cast", {wide}, {to(DType::uint8)}).dtype, DType::undefined);
  EXPECT_THAT(folded("Cast", {wide}, {to(DType::int32)}).to_int64(), ElementsAre(300, -1));
  EXPECT_EQ(folded("Cast", {one<int64_t>(DType::int64, int64_t{1} << 40, {1})}, {to(DType::int32)}).dtype,
            DType::undefined);
  OnnxModel model;
  Graph& graph = *model.graph;
  Value* matrix = node(graph, "Reshape", {ints(graph, {300, 1}), ints(graph, {2, 1})});
  Value* narrow = node(graph, "Cast", {matrix}, "", {to(DType::uint8)});
  Value* list = node(graph, "Cast", {node(graph, "Reshape", {narrow, ints(graph, {-1})})}, "", {to(DType::int64)});
  graph.outputs = {node(graph, "Identity", {list}, "y")};
  fold(model);
  EXPECT_EQ(histogram(graph)["Cast"], 2) << "300 is 44 as uint8";
}

TEST(Fold, arithmetic_that_overflows_is_left_to_run) {
  auto number = [](int64_t element) { return one(DType::int64, element); };
  EXPECT_EQ(folded("Add", {number(INT64_MAX), number(1)}).dtype, DType::undefined);
  EXPECT_EQ(folded("Mul", {number(INT64_MAX), number(2)}).dtype, DType::undefined);
  EXPECT_EQ(folded("Neg", {number(INT64_MIN)}).dtype, DType::undefined);
  EXPECT_EQ(folded("Div", {number(INT64_MIN), number(-1)}).dtype, DType::undefined);
  EXPECT_EQ(folded("Abs", {number(INT64_MIN)}).dtype, DType::undefined);
  EXPECT_THAT(folded("Mod", {number(INT64_MIN), number(-1)}).to_int64(), ElementsAre(0));
  EXPECT_THAT(folded("Min", {number(INT64_MIN), number(INT64_MAX)}).to_int64(), ElementsAre(INT64_MIN));
  auto short_number = [](int32_t element) { return one(DType::int32, element); };
  EXPECT_EQ(folded("Add", {short_number(INT32_MAX), short_number(1)}).dtype, DType::undefined);
}

}  // namespace
}  // namespace tessera::rewrite
