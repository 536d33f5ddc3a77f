// Nodes that one kernel runs together: fewer steps, and the results of one after the other.
#include "property/groups.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tessera/base/error.h"

namespace tessera::property {
namespace {

using testing::ElementsAre;
using Ints = std::vector<int64_t>;

TEST(Groups, ProductTakesBiasActivationAndResidual) {
  Builder b("MatMul, Add, Relu, Add");
  Value* x = b.bind("b", 3).input("b 5 8");
  Value* product = b.node("MatMul", {x, b.weight("8 16")});
  Value* active = b.node("Relu", {b.node("Add", {b.weight("16"), product})});
  Subject subject = b.output(b.node("Add", {active, b.input("b 5 16")})).done();
  EXPECT_THAT(steps_of(subject), ElementsAre("MatMul+Add+Relu+Add"));
}

TEST(Groups, ActivationsKeepTheirAttributes) {
  const std::vector<std::pair<std::string, std::vector<Attribute>>> activations = {
      {"Gelu", {}},
      {"Gelu", {{"approximate", std::string("tanh")}}},
      {"Swish", {{"alpha", 1.5f}}},
      {"LeakyRelu", {{"alpha", 0.25f}}},
      {"Tanh", {}},
      {"Sigmoid", {}}};
  for (const auto& [type, attributes] : activations) {
    Builder b(type);
    Value* product = b.node("MatMul", {b.input("7 8", Fill::reals), b.weight("8 24", Fill::reals)});
    Subject subject = b.output(b.node(type, {product}, attributes)).done(kNormalized);
    EXPECT_THAT(steps_of(subject), ElementsAre("MatMul+" + type));
  }
}

TEST(Groups, BothHalvesOfAGatedUnitAreOneKernelEach) {
  Builder b("SwiGLU");
  Value* x = b.input("6 8", Fill::unit);
  Value* gate = b.node("Swish", {b.node("MatMul", {x, b.weight("8 32", Fill::unit)})});
  Value* up = b.node("MatMul", {x, b.weight("8 32", Fill::unit)});
  Subject subject = b.output(b.node("Mul", {gate, up})).done(kNormalized);
  EXPECT_EQ(steps_of(subject).size(), 2u);
}

TEST(Groups, ProductWithATransposedWeightReadsTheWeight) {
  Builder b("Gather, MatMul of the transposed table");
  Value* table = b.weight("40 16");
  Value* rows = b.node("Gather", {table, b.indices("2 3", 0, 40)});
  Subject subject = b.output(b.node("MatMul", {rows, b.node("Transpose", {table}, {{"perm", Ints{1, 0}}})})).done();
  EXPECT_THAT(steps_of(subject), ElementsAre("Gather", "MatMul"));
}

TEST(Groups, WhatOthersReadIsStored) {
  Builder b("MatMul, Relu, and the product itself");
  Value* product = b.node("MatMul", {b.input("4 8"), b.weight("8 16")});
  Value* active = b.node("Relu", {product});
  Subject subject = b.output(active).output(b.node("Neg", {product})).done();
  EXPECT_THAT(steps_of(subject), ElementsAre("MatMul", "Relu", "Neg"));
}

TEST(Groups, WhatBroadcastsTheProductIsNotPartOfIt) {
  Builder b("a column added, a larger tensor added");
  Value* product = b.node("MatMul", {b.input("4 8"), b.weight("8 16")});
  Value* column = b.node("Add", {product, b.weight("4 1")});
  Subject subject = b.output(b.node("Mul", {b.input("3 4 16"), column})).done();
  EXPECT_THAT(steps_of(subject), ElementsAre("MatMul", "Add", "Mul"));
}

TEST(Groups, SixteenBitProductsRoundOnce) {
  Builder b("bfloat16");
  Value* x = b.input("4 8", Fill::integers, DType::bfloat16);
  Value* product = b.node("MatMul", {x, b.weight("8 16", Fill::small, DType::bfloat16)});
  Value* sum = b.node("Add", {product, b.weight("16", Fill::small, DType::bfloat16)});
  Subject subject = b.output(b.node("Relu", {sum})).done(kBFloat16);
  EXPECT_THAT(steps_of(subject).size(), testing::AnyOf(1u, 3u)) << "together where the CPU multiplies bfloat16";
}

// Two convolutions, one pooling, a residual, channels that do not fill blocks.
Subject residual_block(int64_t channels, DType dtype) {
  Builder b("a residual block of " + std::to_string(channels));
  auto convolved = [&](Value* x, int64_t in) {
    return b.node("Conv",
                  {x, b.weight(fmt::format("{} {} 3 3", channels, in), Fill::small, dtype),
                   b.weight(std::to_string(channels), Fill::small, dtype)},
                  {{"pads", Ints{1, 1, 1, 1}}});
  };
  Value* first = b.node("Relu", {convolved(b.input("2 3 9 8", Fill::small, dtype), 3)});
  Value* pooled = b.node("MaxPool", {first}, {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}});
  Value* sum = b.node("Add", {convolved(pooled, channels), pooled});
  return b.output(b.node("GlobalAveragePool", {b.node("Relu", {sum})}))
      .done(dtype == DType::float32 ? kReordered : kBFloat16);
}

TEST(Groups, ConvolutionsStayInBlocksOfChannels) {
  for (int64_t channels : {32, 20})
    EXPECT_THAT(steps_of(residual_block(channels, DType::float32)),
                ElementsAre("Conv+Relu", "MaxPool", "Conv+Add+Relu", "GlobalAveragePool"));
}

// In blocks, with channels last (AMX), or one by one: by what the CPU multiplies.
TEST(Groups, SixteenBitConvolutionsGiveTheSameInAnyLayout) {
  for (int64_t channels : {1, 5, 16, 17, 20, 32, 48}) steps_of(residual_block(channels, DType::bfloat16));
}

TEST(Groups, TwoConvolutionsThatMeetTakeTheSumOnce) {
  Builder b("two branches");
  Value* x = b.input("1 16 6 6", Fill::small);
  auto convolved = [&] { return b.node("Conv", {x, b.weight("16 16 1 1", Fill::small)}); };
  Value *left = convolved(), *right = convolved();
  Subject subject = b.output(b.node("Relu", {b.node("Add", {left, right})})).done();
  EXPECT_THAT(steps_of(subject), ElementsAre("Conv", "Conv+Add+Relu"));
}

// Between convolutions, poolings and sums nothing is reordered: all but inputs and outputs lie in blocks.
TEST(Groups, NoConvolutionOfANetworkReorders) {
  Builder b("a small network");
  auto convolved = [&](Value* x, int64_t in, int64_t out) {
    return b.node("Relu", {b.node("Conv", {x, b.weight(fmt::format("{} {} 3 3", out, in), Fill::small)},
                                  {{"pads", Ints{1, 1, 1, 1}}})});
  };
  Value* first = convolved(b.input("2 3 12 12", Fill::small), 3, 32);
  Value* pooled = b.node("AveragePool", {first}, {{"kernel_shape", Ints{3, 3}}, {"pads", Ints{1, 1, 1, 1}}});
  Value* second = convolved(pooled, 32, 64);
  Subject subject = b.output(b.node("GlobalAveragePool", {convolved(second, 64, 64)})).done(kReordered);
  EXPECT_EQ(grouping_of(subject).blocked.size(), 4u) << "values in blocks";
  steps_of(subject);
}

// A scale for each channel and a residual, in both orders, height and channels alike so that axes can be confused.
TEST(Groups, ChannelsScalesAndResidualsOfConvolutions) {
  for (bool scale_first : {true, false}) {
    Builder b(scale_first ? "scaled, then added" : "added, then scaled");
    Value* x =
        b.node("Relu", {b.node("Conv", {b.input("2 16 16 3", Fill::small), b.weight("16 16 1 1", Fill::small)})});
    Value* y = b.node("Conv", {x, b.weight("16 16 1 1", Fill::small)});
    Value* scale = b.weight("16 1 1", Fill::small);
    y = scale_first ? b.node("Add", {b.node("Mul", {y, scale}), x}) : b.node("Mul", {b.node("Add", {y, x}), scale});
    steps_of(b.output(b.node("Conv", {y, b.weight("4 16 1 1", Fill::small)})).done());
  }
}

TEST(Groups, WeightThatIsComputedLiesRowMajor) {
  Builder b("a convolution by a convolution's result");
  Value* kernel = b.node("Conv", {b.node("Conv", {b.input("16 3 3 3", Fill::small), b.weight("16 3 1 1", Fill::small)}),
                                  b.weight("16 16 1 1", Fill::small)});
  Value* y = b.node("Conv", {b.input("16 16 5 5", Fill::small), kernel});
  steps_of(b.output(b.node("Relu", {y})).done());
}

TEST(Groups, WindowsInThePaddingAlone) {
  Builder b("padding as wide as the window");
  Value* x = b.node("Conv", {b.input("1 16 6 6", Fill::small), b.weight("16 16 1 1", Fill::small)});
  Value* pooled = b.node("MaxPool", {x}, {{"kernel_shape", Ints{2, 2}}, {"pads", Ints{2, 2, 2, 2}}});
  steps_of(b.output(b.node("Relu", {pooled})).done());
}

TEST(Groups, MaximumOfInfinitiesIsInfinite) {
  Builder b("MaxPool of -inf");
  std::vector<float> values(16, -std::numeric_limits<float>::infinity());
  values[15] = 3;
  Value* x = b.constant(Tensor::of(DType::float32, {1, 1, 4, 4}, values));
  Value* pooled = b.node("MaxPool", {x}, {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}});
  Subject subject = b.output(pooled).done();
  const auto outputs = run_grouped(subject);
  EXPECT_EQ(outputs.begin()->second.as<float>()[0], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(outputs.begin()->second.as<float>()[3], 3);
}

// Depthwise, grouped, one and three dimensions, channels that do not fill blocks.
TEST(Groups, ConvolutionsOfEveryKindInBlocks) {
  struct Kind {
    std::string image, first, second;
    int64_t group;
  };
  for (const Kind& kind :
       {Kind{"2 3 7", "32 3 3", "32 1 3", 32}, Kind{"1 3 5 6", "20 3 2 2", "20 1 2 2", 20},
        Kind{"1 3 5 5", "32 3 1 1", "32 16 3 3", 2}, Kind{"1 2 4 4 4", "16 2 2 2 2", "24 16 2 2 2", 1},
        Kind{"1 3 5 6", "12 3 2 2", "18 2 1 1", 6}})
    for (DType dtype : {DType::float32, DType::bfloat16}) {
      Builder b("convolutions of " + kind.image + " in groups of " + std::to_string(kind.group));
      Value* image = b.input(kind.image, Fill::small, dtype);
      Value* x = b.node("Relu", {b.node("Conv", {image, b.weight(kind.first, Fill::small, dtype)})});
      Value* y = b.node("Conv", {x, b.weight(kind.second, Fill::small, dtype)}, {{"group", kind.group}});
      b.output(b.node("Relu", {y}));
      steps_of(dtype == DType::float32 ? b.done() : b.done(kBFloat16));
    }
}

// The residual is read later too, so the result cannot take its memory over.
TEST(Groups, ResidualThatLivesOnIsKept) {
  Builder b("a residual that is an output of a later node");
  Value* x = b.input("1 16 6 6", Fill::small);
  Value* first = b.node("Relu", {b.node("Conv", {x, b.weight("16 16 1 1", Fill::small)})});
  Value* sum = b.node("Add", {b.node("Conv", {first, b.weight("16 16 1 1", Fill::small)}), first});
  Subject subject = b.output(b.node("Mul", {sum, first})).done();
  steps_of(subject);
}

// Gelu spelt out: the operand is read four times, scalars and a row are repeated.
TEST(Groups, ElementwiseNodesGoThroughMemoryTogether) {
  Builder b("a polynomial, a tangent, a row, a choice");
  Value* x = b.input("3 5 96", Fill::reals);
  Value* cube = b.node("Mul", {b.node("Mul", {x, x}), x});
  Value* inner = b.node("Add", {x, b.node("Mul", {b.number(0.044715), cube})});
  Value* bent = b.node("Add", {b.node("Tanh", {b.node("Mul", {inner, b.number(0.79788456)})}), b.number(1)});
  Value* y = b.node("Add", {b.node("Mul", {b.node("Mul", {b.number(0.5), x}), bent}), b.weight("96", Fill::reals)});
  Value* chosen = b.node("Where", {b.node("Less", {y, b.number(0.25)}), y, b.node("Neg", {y})});
  const std::vector<std::string> steps = steps_of(b.output(chosen).done());
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_THAT(steps[0], testing::EndsWith("+Where"));
}

// More than a piece of a row, rows of one operand, columns of another, types that change.
TEST(Groups, ElementwiseGroupsOfEveryKindOfOperand) {
  struct Extents {
    std::string whole, row, column;
  };
  for (const auto& [extents, row, column] : {Extents{"5000", "5000", "1"}, Extents{"3 2500", "2500", "3 1"},
                                             Extents{"7 64", "64", "7 1"}, Extents{"2 3 4096", "4096", "3 1"}}) {
    Builder b(extents);
    Value* whole = b.node("Cast", {b.node("Floor", {b.input(extents, Fill::reals)})},
                          {{"to", static_cast<int64_t>(DType::int32)}});
    Value* sum = b.node("Add", {whole, b.input(row, Fill::integers, DType::int32)});
    Value* masked = b.node("Where", {b.node("Greater", {sum, b.number(1, DType::int32)}), sum,
                                     b.input(column, Fill::integers, DType::int32)});
    EXPECT_THAT(steps_of(b.output(b.node("Mul", {masked, masked})).done()).size(), 1u) << extents;
  }
}

TEST(Groups, ElementwiseNodesStoreWhatOthersRead) {
  Builder b("a sum and its square, which are outputs, and what is made of them");
  Value* x = b.input("3 5000", Fill::reals);
  Value* sum = b.node("Add", {x, b.input("5000", Fill::reals)});
  Value* square = b.node("Mul", {sum, sum});
  Value* rest = b.node("Sub", {square, x});
  EXPECT_THAT(steps_of(b.output(sum).output(square).output(rest).done()), ElementsAre("Add+Mul+Sub"));
}

// Results in the memory of operands: the first is made while a later node still reads both operands.
TEST(Groups, ElementwiseResultsSpareWhatLaterNodesRead) {
  Builder b("three results of two operands that end");
  Value* x = b.node("Softmax", {b.input("4 4000", Fill::reals)});
  Value* y = b.node("Softmax", {b.input("4 4000", Fill::reals)});
  Value* sum = b.node("Add", {x, y});
  Value* product = b.node("Mul", {sum, x});
  Value* rest = b.node("Sub", {product, y});
  for (Value* result : {sum, product, rest}) b.output(b.node("CumSum", {result, b.integer(1)}));
  EXPECT_THAT(steps_of(b.done(kReordered)), testing::Contains("Add+Mul+Sub"));
}

TEST(Groups, WhatIsReadBeforeTheLastNodeIsNotMadeWithIt) {
  Builder b("a sum that a product reads, and a difference that reads the product");
  Value* x = b.input("64 64", Fill::small);
  Value* sum = b.node("Add", {x, b.input("64", Fill::small)});
  Value* product = b.node("MatMul", {sum, b.input("64 64", Fill::small)});
  EXPECT_THAT(steps_of(b.output(b.node("Sub", {b.node("Neg", {sum}), product})).done()),
              ElementsAre("Add", "MatMul", "Neg+Sub"));
}

// A gradient of a table that a product reads, too. What is scattered for more readers than the sum is made.
TEST(Groups, ScattersIntoZerosScatterIntoWhatTheyAreAddedTo) {
  for (bool is_alone : {true, false})
    for (bool is_left : {true, false}) {
      Builder b(is_alone ? "rows for a sum" : "rows for a sum and a negation");
      Value* product = b.node("MatMul", {b.input("40 8", Fill::small), b.input("8 16", Fill::small)});
      Value* zeros = b.node("Expand", {b.number(0), b.ints({40, 16})});
      Value* rows = b.node("ScatterND", {zeros, b.indices("6 1", 0, 40), b.input("6 16", Fill::small)},
                           {{"reduction", std::string("add")}});
      b.output(is_left ? b.node("Add", {rows, product}) : b.node("Add", {product, rows}));
      if (!is_alone) b.output(b.node("CumSum", {rows, b.integer(1)}));
      const std::vector<std::string> steps = steps_of(b.done());
      if (is_alone)
        EXPECT_THAT(steps, ElementsAre("MatMul", "ScatterND"));
      else
        EXPECT_THAT(steps, testing::Contains("Add"));
    }
}

// A rank's part of a table's gradient, too.
TEST(Groups, PartsOfScattersScatterIntoWhatTheyAreAddedTo) {
  Builder b("rows that fall into a part, for a sum");
  Value* product = b.node("MatMul", {b.input("20 8", Fill::small), b.input("8 16", Fill::small)});
  Value* zeros = b.node("Expand", {b.number(0), b.ints({20, 16})});
  Value* rows = b.node("ScatterNDShard",
                       {zeros, b.indices("6 1", 0, 40), b.input("6 16", Fill::small), b.ints({20}), b.ints({40})},
                       {{"reduction", std::string("add")}}, "tessera");
  EXPECT_THAT(steps_of(b.output(b.node("Add", {rows, product})).done()), ElementsAre("MatMul", "ScatterNDShard"));
}

TEST(Groups, ShortRowsAreNotWorthAPassEach) {
  Builder b("a column of few elements");
  Value* x = b.input("300 8");
  Subject subject = b.output(b.node("Neg", {b.node("Add", {x, b.input("300 1")})})).done();
  EXPECT_THAT(steps_of(subject), ElementsAre("Add", "Neg"));
}

TEST(Groups, AttentionReadsAndWritesHeadsWhereProjectionsHaveThem) {
  for (const char* rotary : {"", "RotaryEmbedding"}) {
    Builder b("a fused projection of heads");
    Value* projected = b.node("MatMul", {b.input("2 5 12", Fill::unit), b.weight("12 48", Fill::unit)});
    Node* split = b.node_of(3, "Split", {projected}, {{"axis", int64_t{2}}, {"num_outputs", int64_t{3}}});
    std::vector<Value*> heads;
    for (Value* part : split->outputs)
      heads.push_back(
          b.node("Transpose", {b.node("Reshape", {part, b.ints({2, 5, 4, 4})})}, {{"perm", Ints{0, 2, 1, 3}}}));
    if (*rotary) {
      Value *cosine = b.input("2 5 2", Fill::unit), *sine = b.input("2 5 2", Fill::unit);
      for (size_t i : {0, 1}) heads[i] = b.node(rotary, {heads[i], cosine, sine});
    }
    Value* merged = b.node("Transpose", {b.node("Attention", heads)}, {{"perm", Ints{0, 2, 1, 3}}});
    Value* y = b.node("MatMul", {b.node("Reshape", {merged, b.ints({2, 5, 16})}), b.weight("16 12", Fill::unit)});
    const std::vector<std::string> steps = steps_of(b.output(y).done(kNormalized));
    if (*rotary)
      EXPECT_THAT(steps, ElementsAre("MatMul", rotary, rotary, "Attention", "MatMul"));
    else
      EXPECT_THAT(steps, ElementsAre("MatMul", "Attention", "MatMul"));
  }
}

TEST(Groups, HalvesOfAProductAreReadInPlace) {
  Builder b("a gated unit of one product");
  Value* product = b.node("MatMul", {b.input("6 8", Fill::unit), b.weight("8 256", Fill::unit)});
  Node* halves = b.node_of(2, "Split", {product}, {{"axis", int64_t{1}}, {"num_outputs", int64_t{2}}});
  Value* y = b.node("Mul", {halves->outputs[0], b.node("Sigmoid", {halves->outputs[1]})});
  EXPECT_THAT(steps_of(b.output(y).done()), ElementsAre("MatMul", "Sigmoid+Mul"));
}

// Elements of a column that lie apart, rows backwards, what is given out, and readers that cannot step.
TEST(Groups, ViewsThatNotAllReadersCanFollowAreWritten) {
  Builder b("columns");
  Node* columns = b.node_of(2, "Split", {b.input("70 2")}, {{"axis", int64_t{1}}, {"num_outputs", int64_t{2}}});
  Subject subject = b.output(b.node("Add", {columns->outputs[0], columns->outputs[1]})).done();
  EXPECT_THAT(steps_of(subject), ElementsAre("Split", "Add"));

  Builder back("backwards");
  Value* reversed =
      back.node("Slice", {back.input("4 80"), back.ints({-1}), back.ints({-100}), back.ints({0}), back.ints({-1})});
  EXPECT_THAT(steps_of(back.output(back.node("Abs", {reversed})).done()), ElementsAre("Abs"));

  Builder given("a transpose that is an output, too");
  Value* heads = given.node("Transpose", {given.input("2 3 4 8", Fill::unit)}, {{"perm", Ints{0, 2, 1, 3}}});
  given.output(heads).output(given.node("Attention", {heads, heads, heads}));
  EXPECT_THAT(steps_of(given.done(kNormalized)), ElementsAre("Transpose", "Attention"));

  // A product reads rows or columns that are consecutive, however far apart.
  Builder product("a slice that is multiplied");
  Value* left =
      product.node("Slice", {product.input("4 80"), product.ints({8}), product.ints({16}), product.ints({1})});
  EXPECT_THAT(steps_of(product.output(product.node("MatMul", {left, product.weight("8 6")})).done()),
              ElementsAre("MatMul"));

  Builder apart("every other column, multiplied");
  Value* odd =
      apart.node("Slice", {apart.input("4 80"), apart.ints({8}), apart.ints({24}), apart.ints({1}), apart.ints({2})});
  EXPECT_THAT(steps_of(apart.output(apart.node("MatMul", {odd, apart.weight("8 6")})).done()),
              ElementsAre("Slice", "MatMul"));
}

// Rows that come first are whole pieces of memory, which anyone reads.
TEST(Groups, RowsOfATensorAreViews) {
  Builder b("rows");
  Node* rows = b.node_of(2, "Split", {b.input("6 8")}, {{"axis", int64_t{0}}, {"num_outputs", int64_t{2}}});
  Value* product = b.node("MatMul", {rows->outputs[1], b.weight("8 4")});
  Subject subject = b.output(product).output(b.node("Softmax", {rows->outputs[0]})).done(kNormalized);
  EXPECT_THAT(steps_of(subject), testing::UnorderedElementsAre("MatMul", "Softmax"));
}

// The result is of the bytes, not of the extents, of what dies.
TEST(Groups, ResultsTakeOverNoRowThatIsReadAgain) {
  Builder b("a mask of as many bytes as a row");
  Value* row = b.node("ReduceSum", {b.input("3 128"), b.ints({0})}, {{"keepdims", int64_t{0}}});
  Value* mask = b.node("Greater", {b.node("Add", {b.input("4 128"), row}), b.number(0)});
  Subject subject = b.output(b.node("Concat", {mask, mask}, {{"axis", int64_t{0}}})).done();
  EXPECT_THAT(steps_of(subject), ElementsAre("ReduceSum", "Add+Greater", "Concat"));
}

// Half of the elements, each of twice the bytes.
TEST(Groups, ResultsTakeOverNoPartOfTheirBytes) {
  Builder b("rows that are widened");
  Value* x = b.node("Concat", {b.input("2 3"), b.input("2 3")}, {{"axis", int64_t{0}}});
  Value* rows = b.node("Slice", {x, b.ints({0}), b.ints({2}), b.ints({0})});
  Value* wide = b.node("Cast", {rows}, {{"to", static_cast<int64_t>(DType::int64)}});
  Subject subject = b.output(b.node("Concat", {wide, wide}, {{"axis", int64_t{0}}})).done();
  EXPECT_THAT(steps_of(subject), ElementsAre("Concat", "Cast", "Concat"));
}

TEST(Groups, TransposedResultsTakeOverNoOperand) {
  Builder b("rotated in place, if it could be");
  Value* x = b.node("Softmax", {b.input("2 4 5 8", Fill::unit)});
  Value* rotated = b.node("RotaryEmbedding", {x, b.input("2 5 4", Fill::unit), b.input("2 5 4", Fill::unit)});
  Value* turned = b.node("Transpose", {rotated}, {{"perm", Ints{0, 2, 1, 3}}});
  Subject subject = b.output(b.node("Concat", {turned, turned}, {{"axis", int64_t{0}}})).done(kNormalized);
  EXPECT_THAT(steps_of(subject), ElementsAre("Softmax", "RotaryEmbedding", "Concat"));
}

TEST(Groups, RepeatedElementsAreRepeatedBeforeAFunctionOfOneOperand) {
  for (const char* last : {"4 64 1", "4 64"}) {
    Builder b(last);
    Value* x = b.input(last == std::string("4 64") ? "4 1" : "4 1 1");
    Value* repeated = b.node("Expand", {x, b.ints(last == std::string("4 64") ? Ints{4, 64} : Ints{4, 64, 1})});
    steps_of(b.output(b.node("Neg", {b.node("Relu", {repeated})})).done());
  }
}

TEST(Groups, PartsThatDoNotAddUpAreRefused) {
  Builder b("rows 3 and 5 of 6");
  Node* parts = b.node_of(2, "Split", {b.bind("n", 6).input("n 8"), b.ints({3, 5})}, {{"axis", int64_t{0}}});
  b.output(b.node("Softmax", {parts->outputs[0]})).output(b.node("Softmax", {parts->outputs[1]}));
  const Subject subject = b.done(kNormalized);
  EXPECT_THROW(run_grouped(subject), Error);
}

TEST(Groups, OperandsMayBeLeftOutAndOfSixteenBits) {
  Builder b("Clip without a minimum");
  Value* x = b.input("3 96", Fill::reals, DType::bfloat16);
  Value* y = b.node("Clip", {b.node("Mul", {x, x}), nullptr, b.number(2, DType::bfloat16)});
  EXPECT_THAT(steps_of(b.output(b.node("Neg", {y})).done()), ElementsAre("Mul+Clip+Neg"));
}

TEST(Groups, WhatWouldRunMuchLaterRunsInItsPlace) {
  Builder b("a sum that is wanted at the end");
  Value* early = b.node("Add", {b.input("4 128", Fill::unit), b.input("128", Fill::unit)});
  Value* x = b.input("4 128", Fill::unit);
  for (int layer = 0; layer < 40; ++layer) x = b.node("Softmax", {x});
  const Subject subject = b.output(b.node("Mul", {x, early})).done(kNormalized);
  EXPECT_EQ(grouping_of(subject).groups.size(), 42u);
}

TEST(Groups, ChainsOfViewsEnd) {
  Builder b("a column less, each time");
  Value* x = b.input("3 300");
  for (int node = 0; node < 200; ++node) x = b.node("Slice", {x, b.ints({1}), b.ints({1000}), b.ints({1})});
  EXPECT_LT(steps_of(b.output(b.node("Abs", {x})).done()).size(), 6u);
}

}  // namespace
}  // namespace tessera::property
