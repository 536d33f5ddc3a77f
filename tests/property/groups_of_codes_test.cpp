// Integer products and sums of codes that one kernel runs together with the nodes that follow.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "property/groups.h"

namespace tessera::property {
namespace {

using testing::ElementsAre;
using Ints = std::vector<int64_t>;

// Sums of integers become codes again before they are stored, and images between lie with their channels last.
TEST(Groups, ConvolutionsOfIntegersKeepTheirChannelsLast) {
  for (const DType type : {DType::uint8, DType::int8}) {
    Builder b(fmt::format("a quantized residual block of {}", name_of(type)));
    const auto number = [&](double value) { return b.constant(Tensor::of<float>(DType::float32, {}, {float(value)})); };
    Value* zero = b.input("", Fill::small, type);
    const auto convolved = [&](Value* x, std::string_view weight, std::string_view channels, int64_t group,
                               int64_t pad) {
      Value* sums = b.node("ConvInteger", {x, b.weight(weight, Fill::small, DType::int8), zero},
                           {{"group", group}, {"pads", Ints(4, pad)}});
      Value* y = b.node("Mul", {b.node("Cast", {sums}, {{"to", int64_t{1}}}), b.weight(channels, Fill::positive)});
      return b.node("QuantizeLinear", {b.node("Add", {y, b.weight(channels)}), number(64), zero});
    };
    Value* first = convolved(b.input("2 3 9 8", Fill::small, type), "70 3 3 3", "70 1 1", 1, 1);
    Value* pooled = b.node("MaxPool", {first}, {{"kernel_shape", Ints{2, 2}}, {"pads", Ints{1, 0, 0, 1}}});
    Value* alone = convolved(pooled, "70 1 3 3", "70 1 1", 70, 1);
    Value* pairs = convolved(alone, "70 2 1 1", "70 1 1", 35, 0);
    const auto floats = [&](Value* x) { return b.node("DequantizeLinear", {x, number(0.5), zero}); };
    Value* sum = b.node("QuantizeLinear", {b.node("Add", {floats(pairs), floats(pooled)}), number(2), zero});
    Value* last = convolved(sum, "6 70 2 2", "6 1 1", 1, 0);
    Subject subject = b.output(b.node("DequantizeLinear", {last, number(0.5), zero})).done();
    const std::string convolution = "ConvInteger+Cast+Mul+Add+QuantizeLinear";
    EXPECT_THAT(steps_of(subject), ElementsAre(convolution, "MaxPool", convolution,
                                               convolution + "+DequantizeLinear+DequantizeLinear+Add+QuantizeLinear",
                                               convolution, "DequantizeLinear"));
    EXPECT_EQ(grouping_of(subject).blocked.size(), 4u) << "values with channels last";
  }
}

// All widths and kinds of convolutions, where results lie with their channels last and where they do not, and with
// numbers of any size.
TEST(Groups, ConvolutionsOfIntegersAddCodes) {
  struct Form {
    const char *image, *weight;
    int64_t group;
    bool relu, other_first, channels_last;
    float own, other, scale;
  };
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  for (const Form& form : {Form{"2 8 5 4", "64 8 3 3", 1, false, false, true, 0.3F, 0.7F, 0.9F},
                           Form{"1 8 7 7", "134 8 1 1", 1, true, true, true, 0.3F, 0.7F, 0.9F},
                           Form{"1 8 7 7", "134 8 1 1", 1, true, false, false, 0.3F, -0.7F, 0.9F},
                           Form{"2 8 5 4", "70 4 3 3", 2, false, true, false, 0.3F, 0.7F, 0.9F},
                           Form{"2 70 5 4", "70 1 3 3", 70, true, false, true, 0.3F, 0.7F, 0.9F},
                           Form{"2 70 5 4", "70 1 3 3", 70, false, false, false, 0.3F, 0.7F, 0.9F},
                           Form{"1 8 7 7", "66 8 1 1", 1, false, false, true, 0.3F, 0.7F, -0.9F},
                           Form{"1 8 7 7", "66 8 1 1", 1, true, false, true, 3e38F, 0.7F, 1e-3F},
                           Form{"1 8 7 7", "66 8 1 1", 1, false, false, true, 1e-39F, 1e-38F, 1e-39F},
                           Form{"1 8 7 7", "66 8 1 1", 1, false, false, true, 0.3F, kNone, 0.9F},
                           Form{"1 8 7 7", "66 8 1 1", 1, false, false, true, 0.3F, 0.7F, kNone}})
    for (const DType type : {DType::uint8, DType::int8}) {
      SCOPED_TRACE(fmt::format("{} [{}] by [{}], scales {} {} {}", name_of(type), form.image, form.weight, form.own,
                               form.other, form.scale));
      Builder b("ConvInteger, Cast, Mul, QuantizeLinear, DequantizeLinear, DequantizeLinear, Add, QuantizeLinear");
      const auto number = [&](float value) { return b.constant(Tensor::of<float>(DType::float32, {}, {value})); };
      const auto zero = [&] { return b.input("", Fill::small, type); };
      const std::string image = form.image, weight = form.weight, results = weight.substr(0, weight.find(' '));
      const auto convolved = [&](Value* x, const std::string& by, int64_t group, int64_t pad) {
        Value* sums = b.node("ConvInteger", {x, b.weight(by, Fill::small, DType::int8), zero()},
                             {{"group", group}, {"pads", Ints(4, pad)}});
        Value* y = b.node("Mul", {b.node("Cast", {sums}, {{"to", int64_t{1}}}), number(0.4F)});
        return b.node("QuantizeLinear", {y, number(1.5F), zero()});
      };
      Value* x = b.input(image, Fill::small, type);
      const int64_t pad = weight.back() == '3' ? 1 : 0;
      Value* other = convolved(x, weight, form.group, pad);
      Value* own = convolved(x, weight, form.group, pad);
      Value* floats = b.node("DequantizeLinear", {own, number(form.own), zero()});
      Value* others = b.node("DequantizeLinear", {other, number(form.other), zero()});
      Value* sum = form.other_first ? b.node("Add", {others, floats}) : b.node("Add", {floats, others});
      if (form.relu) sum = b.node("Relu", {sum});
      Value* codes = b.node("QuantizeLinear", {sum, number(form.scale), zero()});
      if (form.channels_last) codes = convolved(codes, "3 " + results + " 1 1", 1, 0);
      const auto steps = steps_of(b.output(codes).done());
      EXPECT_EQ(
          std::count_if(steps.begin(), steps.end(),
                        [](const std::string& step) { return step.find("+DequantizeLinear") != std::string::npos; }),
          1);
      EXPECT_EQ(steps.size(), form.channels_last ? 3u : 2u);
    }
}

// Kernels whose lines of a few channels are filled up, so that windows are read where they lie: as first layers have
// them.
TEST(Groups, ConvolutionsOfIntegersReadLinesOfFewChannels) {
  struct Form {
    const char *image, *weight;
    Ints strides, dilations, pads;
  };
  for (const Form& form :
       {Form{"2 3 14 13", "70 3 7 7", {2, 2}, {1, 1}, {3, 3, 3, 3}},
        Form{"1 3 15 15", "64 3 7 7", {2, 2}, {1, 1}, {0, 0, 0, 0}},
        Form{"2 3 9 9", "130 3 5 5", {1, 1}, {2, 1}, {2, 2, 2, 2}},
        Form{"1 3 9 16", "66 3 5 5", {1, 1}, {1, 2}, {1, 0, 2, 1}},
        Form{"1 5 4 9", "64 5 1 3", {1, 3}, {1, 1}, {0, 1, 0, 1}}, Form{"2 3 21", "64 3 5", {2}, {1}, {1, 2}},
        Form{"1 3 4 6 9", "64 3 2 3 5", {1, 1, 2}, {1, 1, 1}, {1, 0, 2, 0, 1, 3}}})
    for (const DType image : {DType::uint8, DType::int8})
      for (const DType weight : {DType::uint8, DType::int8})
        for (const bool channels_last : {false, true}) {
          SCOPED_TRACE(fmt::format("{} [{}] by {} [{}]", name_of(image), form.image, name_of(weight), form.weight));
          Builder b("ConvInteger, Cast, Mul, QuantizeLinear");
          const auto number = [&](float value) { return b.constant(Tensor::of<float>(DType::float32, {}, {value})); };
          Value* zero = b.input("", Fill::small, image);
          Value* weight_zero = weight == DType::uint8
                                   ? b.constant(Tensor::of<uint8_t>(DType::uint8, {}, {uint8_t{128}}))
                                   : b.constant(Tensor::of<int8_t>(DType::int8, {}, {int8_t{0}}));
          Value* sums = b.node(
              "ConvInteger",
              {b.input(form.image, Fill::small, image), b.weight(form.weight, Fill::small, weight), zero, weight_zero},
              {{"strides", form.strides}, {"dilations", form.dilations}, {"pads", form.pads}});
          Value* y = b.node("Mul", {b.node("Cast", {sums}, {{"to", int64_t{1}}}), number(0.4F)});
          Value* codes = b.node("QuantizeLinear", {y, number(40), zero});
          if (channels_last) {
            const std::string of = form.weight;
            std::string pointwise = "3 " + of.substr(0, of.find(' '));
            for (size_t d = 0; d < form.strides.size(); ++d) pointwise += " 1";
            codes = b.node("ConvInteger", {codes, b.weight(pointwise, Fill::small, DType::int8), zero});
          }
          EXPECT_THAT(steps_of(b.output(codes).done()), testing::Contains("ConvInteger+Cast+Mul+QuantizeLinear"));
        }
}

// Not if others read the tensors between, or the sum is of floats that are not codes.
TEST(Groups, ConvolutionsOfIntegersLeaveOtherSums) {
  for (const char* form : {"codes are read", "floats are read", "floats are added", "one tensor twice"}) {
    SCOPED_TRACE(form);
    const std::string of = form;
    Builder b("ConvInteger, Cast, Mul, QuantizeLinear, DequantizeLinear, Add, QuantizeLinear");
    const auto number = [&](float value) { return b.constant(Tensor::of<float>(DType::float32, {}, {value})); };
    Value* sums = b.node(
        "ConvInteger", {b.input("1 8 5 5", Fill::small, DType::uint8), b.weight("66 8 1 1", Fill::small, DType::int8)});
    Value* y = b.node("Mul", {b.node("Cast", {sums}, {{"to", int64_t{1}}}), number(0.4F)});
    Value* codes = b.node("QuantizeLinear", {y, number(1.5F), nullptr});
    Value* floats = b.node("DequantizeLinear", {codes, number(0.5F), nullptr});
    Value* other = b.input("1 66 5 5");
    if (of != "floats are added")
      other = b.node("DequantizeLinear", {b.input("1 66 5 5", Fill::small, DType::uint8), number(0.5F), nullptr});
    if (of == "one tensor twice") other = floats;
    if (of == "codes are read") b.output(codes);
    if (of == "floats are read") b.output(floats);
    Value* sum = b.node("QuantizeLinear", {b.node("Add", {floats, other}), number(2), nullptr});
    EXPECT_THAT(steps_of(b.output(sum).done()), testing::Contains("ConvInteger+Cast+Mul+QuantizeLinear"));
  }
}

// Any number of codes, with and without zero points, Relu, and results between that are read elsewhere.
TEST(Groups, SumsOfCodesAreOneLoop) {
  for (const DType type : {DType::uint8, DType::int8})
    for (const char* dims : {"3 5", "1 16", "2 70"})
      for (const double scale : {0.75, -0.75})
        for (const bool with_zero : {false, true})
          for (const bool with_relu : {false, true})
            for (const bool stores_between : {false, true}) {
              SCOPED_TRACE(fmt::format("{} [{}], scale {}, zero points {}, Relu {}, stores {}", name_of(type), dims,
                                       scale, with_zero, with_relu, stores_between));
              Builder b("DequantizeLinear, DequantizeLinear, Add, Relu, QuantizeLinear");
              const auto number = [&](double value) {
                return b.constant(Tensor::of<float>(DType::float32, {}, {float(value)}));
              };
              const auto scaled = [&](const char* op, Value* x, double by) {
                std::vector<Value*> operands = {x, number(by)};
                if (with_zero || type == DType::int8) operands.push_back(b.input("", Fill::small, type));
                return b.node(op, operands);
              };
              Value* sum = b.node("Add", {scaled("DequantizeLinear", b.input(dims, Fill::small, type), 0.3),
                                          scaled("DequantizeLinear", b.input(dims, Fill::small, type), 0.7)});
              if (stores_between) b.output(sum);
              if (with_relu) sum = b.node("Relu", {sum});
              EXPECT_EQ(steps_of(b.output(scaled("QuantizeLinear", sum, scale)).done()).size(), 1u);
            }
}

// In another precision between, with zero points that are left out by name, and with scales that are not constants.
TEST(Groups, SumsOfCodesRoundAsTheirNodesDo) {
  struct Form {
    DType between;
    int64_t precision;  ///< of QuantizeLinear; 0: its scale's
    bool relu, constant;
    double scale;
  };
  for (const Form& form : {Form{DType::float32, 0, false, true, 1.01}, Form{DType::float32, 0, true, false, 1.01},
                           Form{DType::float32, 0, true, false, -1.01}, Form{DType::float16, 0, false, true, 1.01},
                           Form{DType::float32, 10, false, true, 1.01},
                           Form{DType::float32, 0, false, true, std::numeric_limits<double>::quiet_NaN()}}) {
    SCOPED_TRACE(fmt::format("{}, precision {}, Relu {}, constant {}, scale {}", name_of(form.between), form.precision,
                             form.relu, form.constant, form.scale));
    Builder b("DequantizeLinear, DequantizeLinear, Add, Relu, QuantizeLinear");
    const auto number = [&](double value) {
      return b.constant(Tensor::of<float>(DType::float32, {}, {static_cast<float>(value)}));
    };
    std::vector<uint8_t> all(256 * 200);
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint8_t>(i * 7 + i / 256);
    const auto floats = [&](Value* codes, double scale) {
      std::vector<Attribute> attributes;
      if (form.between != DType::float32) attributes.push_back({"output_dtype", static_cast<int64_t>(form.between)});
      return b.node("DequantizeLinear", {codes, number(scale), nullptr}, attributes);
    };
    Value* sum = b.node("Add", {floats(b.constant(Tensor::of<uint8_t>(DType::uint8, {200, 256}, all)), 0.3),
                                floats(b.input("200 256", Fill::small, DType::uint8), 0.7)});
    if (form.relu) sum = b.node("Relu", {sum});
    Value* scale = form.constant ? number(form.scale) : b.input("", Fill::positive);
    if (!form.constant && form.scale < 0) scale = b.node("Neg", {scale});
    std::vector<Attribute> attributes;
    if (form.precision != 0) attributes.push_back({"precision", form.precision});
    steps_of(b.output(b.node("QuantizeLinear", {sum, scale, nullptr}, attributes)).done());
  }
}

// A rank of several may have one channel of a list of scales.
TEST(Groups, SumsOfCodesHaveOneScaleWhereverTheyRun) {
  const Mesh mesh = Mesh::parse("x=2");
  for (const bool with_relu : {false, true}) {
    Builder b("DequantizeLinear, DequantizeLinear, Add, Relu, QuantizeLinear along channels");
    const std::vector<Attribute> along = {{"axis", int64_t{1}}};
    const auto scales = [&] { return b.weight("2", Fill::positive); };
    Value* a = b.input("3 2 5", Fill::small, DType::uint8);
    Value* sum = b.node(
        "Add", {b.node("DequantizeLinear", {a, scales(), nullptr}, along),
                b.node("DequantizeLinear", {b.input("3 2 5", Fill::small, DType::uint8), scales(), nullptr}, along)});
    if (with_relu) sum = b.node("Relu", {sum});
    const Subject subject = b.output(b.node("QuantizeLinear", {sum, scales(), nullptr}, along)).done();
    Trials trials(subject);
    trials.run(mesh, {{a, parse_sharding("[-, x, -]", a->shape(), mesh, "a"), "test"}});
    EXPECT_GT(trials.right(), 0);
  }
}

TEST(Groups, ProductsOfIntegersFinishTheirSums) {
  Builder b("MatMulInteger, Add, Cast, Mul, Relu");
  Value* x = b.bind("b", 3).input("b 5 70", Fill::small, DType::uint8);
  Value* sums = b.node("MatMulInteger", {x, b.weight("70 66", Fill::small, DType::int8)});
  Value* floats =
      b.node("Cast", {b.node("Add", {sums, b.weight("66", Fill::small, DType::int32)})}, {{"to", int64_t{1}}});
  Subject subject = b.output(b.node("Relu", {b.node("Mul", {b.input("", Fill::positive), floats})})).done();
  EXPECT_THAT(steps_of(subject), ElementsAre("MatMulInteger+Add+Cast+Mul+Relu"));
}

// What zero points change about sums is added with their columns, or before, if it depends on rows or on groups.
TEST(Groups, ConvolutionsOfIntegersCorrectTheirSums) {
  for (const DType image : {DType::uint8, DType::int8})
    for (const DType weight : {DType::uint8, DType::int8})
      for (const int64_t group : {1, 2})
        for (const double scale : {0.5, -0.5})
          for (const char* zeros : {"none", "neutral", "some"}) {
            SCOPED_TRACE(fmt::format("{} by {}, {} groups, scale {}, zero points {}", name_of(image), name_of(weight),
                                     group, scale, zeros));
            Builder b("ConvInteger, Add, Cast, Mul, QuantizeLinear");
            std::vector<uint8_t> bytes(6, weight == DType::uint8 ? 0x80 : 0);
            if (zeros == std::string("some")) bytes[4] = 3;
            Value* of_weight =
                zeros == std::string("none") ? nullptr : b.constant(Tensor::of<uint8_t>(weight, {6}, bytes));
            Value* of_image = zeros == std::string("none") ? nullptr : b.input("", Fill::small, image);
            Value* sums =
                b.node("ConvInteger",
                       {b.input("2 4 7 6", Fill::small, image),
                        b.weight(fmt::format("6 {} 3 3", 4 / group), Fill::small, weight), of_image, of_weight},
                       {{"group", group}, {"pads", Ints(4, 1)}});
            Value* y = b.node("Cast", {b.node("Add", {sums, b.weight("6 1 1", Fill::small, DType::int32)})},
                              {{"to", int64_t{1}}});
            Value* by = b.constant(Tensor::of<float>(DType::float32, {}, {static_cast<float>(scale)}));
            y = b.node("QuantizeLinear", {b.node("Mul", {y, b.weight("6 1 1")}), by, b.input("", Fill::small, image)});
            EXPECT_EQ(steps_of(b.output(y).done()).size(), 1u);
          }
}

// Factors and biases that make a sum infinite, or no number.
TEST(Groups, ConvolutionsOfIntegersTakeNumbersOfAnySize) {
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN(), kInfinite = std::numeric_limits<float>::infinity();
  for (const DType type : {DType::uint8, DType::int8})
    for (const auto& [by, factor, bias] : {std::tuple(1e-3F, 0.2F, 1e37F),
                                           {1e-3F, 3e38F, 0.0F},
                                           {1e-3F, 3e38F, -kInfinite},
                                           {0.5F, kNone, 0.0F},
                                           {0.5F, 0.0F, kNone},
                                           {1e-39F, 1e-39F, 1e-38F},
                                           {1e35F, 1e35F, 3e37F},
                                           {kInfinite, 0.1F, 0.5F}}) {
      SCOPED_TRACE(fmt::format("{}: sums by {}, and {}, over {}", name_of(type), factor, bias, by));
      Builder b("ConvInteger, Cast, Mul, Add, QuantizeLinear");
      const auto channels = [&](float all, float one) {
        std::vector<float> numbers(66, all);
        numbers[5] = one;
        return b.constant(Tensor::of<float>(DType::float32, {66, 1, 1}, numbers));
      };
      Value* sums =
          b.node("ConvInteger", {b.input("1 8 5 5", Fill::small, type), b.weight("66 8 3 3", Fill::small, DType::int8),
                                 b.input("", Fill::small, type)});
      Value* y = b.node("Mul", {b.node("Cast", {sums}, {{"to", int64_t{1}}}), channels(0.1F, factor)});
      y = b.node("Add", {y, channels(0.5F, bias)});
      Value* scale = b.constant(Tensor::of<float>(DType::float32, {}, {by}));
      EXPECT_EQ(steps_of(b.output(b.node("QuantizeLinear", {y, scale, b.input("", Fill::small, type)})).done()).size(),
                1u);
    }
}

// Windows of all kinds, in tiles that do not come out even, are read where they lie, or gathered where they do not.
TEST(Groups, ConvolutionsOfIntegersReadAllKindsOfWindows) {
  struct Windows {
    const char *image, *weight;
    int64_t group;
    Ints strides, dilations, pads;
  };
  for (const Windows& windows : {Windows{"1 8 13 11", "134 8 3 3", 1, {1, 1}, {1, 1}, {1, 1, 1, 1}},
                                 Windows{"2 16 9 9", "128 8 3 2", 2, {2, 1}, {1, 2}, {2, 0, 1, 3}},
                                 Windows{"1 64 7 7", "70 64 1 1", 1, {1, 1}, {1, 1}, {0, 0, 0, 0}},
                                 Windows{"2 4 6 5", "64 4 1 1", 1, {2, 2}, {1, 1}, {3, 0, 0, 0}},
                                 Windows{"1 3 15 14", "66 3 7 7", 1, {2, 2}, {1, 1}, {3, 3, 3, 3}},
                                 Windows{"1 4 5 6 7", "65 4 2 3 2", 1, {1, 2, 1}, {2, 1, 1}, {1, 1, 0, 0, 2, 1}}})
    for (const DType type : {DType::uint8, DType::int8}) {
      SCOPED_TRACE(fmt::format("{} of {} by {}", name_of(type), windows.image, windows.weight));
      Builder b("ConvInteger, Cast, Mul, Relu, QuantizeLinear");
      Value* zero = b.input("", Fill::small, type);
      Value* sums =
          b.node("ConvInteger",
                 {b.input(windows.image, Fill::small, type), b.weight(windows.weight, Fill::small, DType::int8), zero},
                 {{"group", windows.group},
                  {"strides", windows.strides},
                  {"dilations", windows.dilations},
                  {"pads", windows.pads}});
      const std::string weight = windows.weight, results = weight.substr(0, weight.find(' '));
      Value* y = b.node("Cast", {sums}, {{"to", int64_t{1}}});
      y = b.node("Relu", {b.node("Mul", {y, b.weight(results + (windows.strides.size() == 2 ? " 1 1" : " 1 1 1"))})});
      Value* by = b.constant(Tensor::of<float>(DType::float32, {}, {0.5F}));
      EXPECT_EQ(steps_of(b.output(b.node("QuantizeLinear", {y, by, zero})).done()).size(), 1u);
    }
}

// In one loop from sums to codes; not where the scale is below zero, or stages come in another order.
TEST(Groups, ProductsOfIntegersBecomeCodes) {
  for (const DType type : {DType::uint8, DType::int8})
    for (const double scale : {0.5, -0.5})
      for (const bool reluctant : {false, true})
        for (const int64_t columns : {1, 15, 66}) {
          SCOPED_TRACE(fmt::format("{}, scale {}, {} columns, Relu {}", name_of(type), scale, columns,
                                   reluctant ? "before Mul" : "last"));
          Builder b("MatMulInteger, Add, Cast, Mul, Add, Relu, QuantizeLinear");
          const std::string list = std::to_string(columns);
          Value* x = b.bind("b", 3).input("b 5 70", Fill::small, DType::uint8);
          Value* sums = b.node("MatMulInteger", {x, b.weight("70 " + list, Fill::small, DType::int8)});
          Value* y =
              b.node("Cast", {b.node("Add", {sums, b.weight(list, Fill::small, DType::int32)})}, {{"to", int64_t{1}}});
          if (reluctant) y = b.node("Relu", {y});
          y = b.node("Add", {b.node("Mul", {y, b.weight(list)}), b.weight(list)});
          if (!reluctant) y = b.node("Relu", {y});
          Value* by = b.constant(Tensor::of<float>(DType::float32, {}, {static_cast<float>(scale)}));
          Subject subject = b.output(b.node("QuantizeLinear", {y, by, b.input("", Fill::small, type)})).done();
          EXPECT_EQ(steps_of(subject).size(), 1u);
        }
}

TEST(Groups, ProductsOfIntegersReadATurnedWeightItself) {
  Builder b("MatMulInteger by a Transpose");
  Value* turned = b.node("Transpose", {b.weight("66 70", Fill::small, DType::int8)}, {{"perm", Ints{1, 0}}});
  Subject subject = b.output(b.node("MatMulInteger", {b.input("5 70", Fill::small, DType::uint8), turned})).done();
  EXPECT_THAT(steps_of(subject), ElementsAre("MatMulInteger"));
}

// What is not one number or a list along the columns does not go with the sums.
TEST(Groups, ProductsOfIntegersLeaveWhatDoesNotFitTheirColumns) {
  Builder b("MatMulInteger, Cast, Mul by rows");
  Value* sums =
      b.node("MatMulInteger", {b.input("6 70", Fill::small, DType::uint8), b.weight("70 6", Fill::small, DType::int8)});
  Value* floats = b.node("Cast", {sums}, {{"to", int64_t{1}}});
  Subject subject = b.output(b.node("Mul", {floats, b.input("6 1", Fill::positive)})).done();
  EXPECT_THAT(steps_of(subject), ElementsAre("MatMulInteger+Cast", "Mul"));
}

}  // namespace
}  // namespace tessera::property
