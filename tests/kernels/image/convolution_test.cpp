#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "kernels/random_tensors.h"
#include "tessera/base/error.h"
#include "tessera/kernels/packing.h"

namespace tessera::kernels {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// A convolution with three spatial dimensions; fewer are leading ones of extent 1, kernel 1.
struct Case {
  int64_t batch = 1, in = 1, out = 1, group = 1;
  Dims extents, kernel, strides, dilations, pads_begin, pads_end;
};

int64_t extent_after(const Case& c, size_t i) {
  return (c.extents[i] + c.pads_begin[i] + c.pads_end[i] - ((c.kernel[i] - 1) * c.dilations[i] + 1)) / c.strides[i] + 1;
}

Dims with_channels(int64_t batch, int64_t channels, const Dims& spatial) {
  Dims dims{batch, channels};
  dims.insert(dims.end(), spatial.begin(), spatial.end());
  return dims;
}

struct Padded {
  std::array<int64_t, 3> extents{1, 1, 1}, kernel{1, 1, 1}, strides{1, 1, 1}, dilations{1, 1, 1}, pads{}, out{1, 1, 1};
};

Padded padded(const Case& c) {
  Padded p;
  for (size_t i = 0, to = 3 - c.kernel.size(); i < c.kernel.size(); ++i, ++to) {
    p.extents[to] = c.extents[i];
    p.kernel[to] = c.kernel[i];
    p.strides[to] = c.strides[i];
    p.dilations[to] = c.dilations[i];
    p.pads[to] = c.pads_begin[i];
    p.out[to] = extent_after(c, i);
  }
  return p;
}

/// Calls visit(flat output position, flat input position, flat kernel position) for every tap inside the input.
template <typename Visit>
void for_taps(const Padded& p, Visit visit) {
  std::array<int64_t, 3> o, k;
  for (o[0] = 0; o[0] < p.out[0]; ++o[0])
    for (o[1] = 0; o[1] < p.out[1]; ++o[1])
      for (o[2] = 0; o[2] < p.out[2]; ++o[2])
        for (k[0] = 0; k[0] < p.kernel[0]; ++k[0])
          for (k[1] = 0; k[1] < p.kernel[1]; ++k[1])
            for (k[2] = 0; k[2] < p.kernel[2]; ++k[2]) {
              int64_t out = 0, in = 0, tap = 0;
              bool inside = true;
              for (int i = 0; i < 3; ++i) {
                const int64_t at = o[i] * p.strides[i] - p.pads[i] + k[i] * p.dilations[i];
                inside = inside && at >= 0 && at < p.extents[i];
                out = out * p.out[i] + o[i];
                in = in * p.extents[i] + at;
                tap = tap * p.kernel[i] + k[i];
              }
              if (inside) visit(out, in, tap);
            }
}

std::vector<float> convolved(const Case& c, const Tensor& x, const Tensor& w, const Tensor& bias) {
  const Padded p = padded(c);
  const int64_t in_count = count_of(p.extents), out_count = count_of(p.out), taps = count_of(p.kernel);
  const int64_t in = c.in / c.group, out = c.out / c.group;
  std::vector<float> y(c.batch * c.out * out_count);
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t o = 0; o < c.out; ++o) {
      float* plane = y.data() + (b * c.out + o) * out_count;
      std::fill_n(plane, out_count, bias.as<float>()[o]);
      for (int64_t i = 0; i < in; ++i) {
        const float* input = x.as<float>().data() + (b * c.in + o / out * in + i) * in_count;
        const float* weights = w.as<float>().data() + (o * in + i) * taps;
        for_taps(p, [&](int64_t to, int64_t from, int64_t tap) { plane[to] += input[from] * weights[tap]; });
      }
    }
  return y;
}

/// The gradient of a convolution by its input: x has c's output extents, the result c's input extents. `c.in` and
/// `c.out` are those of the transposed convolution.
std::vector<float> transposed_convolved(const Case& c, const Tensor& x, const Tensor& w, const Tensor& bias) {
  const Padded p = padded(c);
  const int64_t x_count = count_of(p.out), y_count = count_of(p.extents), taps = count_of(p.kernel);
  const int64_t in = c.in / c.group, out = c.out / c.group;
  std::vector<float> y(c.batch * c.out * y_count);
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t o = 0; o < c.out; ++o) {
      float* plane = y.data() + (b * c.out + o) * y_count;
      std::fill_n(plane, y_count, bias.as<float>()[o]);
      for (int64_t i = 0; i < in; ++i) {
        const int64_t channel = o / out * in + i;
        const float* input = x.as<float>().data() + (b * c.in + channel) * x_count;
        const float* weights = w.as<float>().data() + (channel * out + o % out) * taps;
        for_taps(p, [&](int64_t from, int64_t to, int64_t tap) { plane[to] += input[from] * weights[tap]; });
      }
    }
  return y;
}

Attributes attributes_of(const Case& c) {
  Dims pads = c.pads_begin;
  pads.insert(pads.end(), c.pads_end.begin(), c.pads_end.end());
  return {{"strides", c.strides}, {"dilations", c.dilations}, {"pads", pads}, {"group", c.group}};
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {2, 3, 4, 1, {9}, {3}, {2}, {1}, {1}, {0}},
      {1, 3, 8, 1, {12, 13}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
      {2, 16, 32, 1, {14, 14}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
      {1, 16, 16, 16, {10, 11}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
      {1, 12, 8, 4, {10, 9}, {3, 2}, {1, 2}, {2, 1}, {0, 1}, {2, 0}},
      {1, 20, 17, 1, {7, 7}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
      {1, 4, 6, 2, {5, 6, 7}, {3, 3, 2}, {1, 2, 1}, {1, 1, 2}, {1, 0, 1}, {1, 1, 0}},
  };
  return all;
}

TEST(Conv, IsExactForIntegersWhateverTheWindows) {
  RandomTensors random(21);
  for (size_t index = 0; index < cases().size(); ++index) {
    const Case& c = cases()[index];
    const Tensor x = random.integer_floats(with_channels(c.batch, c.in, c.extents), 5);
    const Tensor w = random.integer_floats(with_channels(c.out, c.in / c.group, c.kernel), 5);
    const Tensor bias = random.integer_floats({c.out}, 5);
    Dims out;
    for (size_t i = 0; i < c.kernel.size(); ++i) out.push_back(extent_after(c, i));
    const Dims y = with_channels(c.batch, c.out, out);
    const auto expected = convolved(c, x, w, bias);
    const Attributes attributes = attributes_of(c);
    EXPECT_EQ(values_of<float>(run_kernel_one("Conv", {x, w, bias}, DType::float32, y, {.attributes = attributes})),
              expected)
        << "case " << index;
    const Tensor doubles = run_kernel_one("Conv",
                                          {converted<double>(DType::float64, x), converted<double>(DType::float64, w),
                                           converted<double>(DType::float64, bias)},
                                          DType::float64, y, {.attributes = attributes});
    EXPECT_EQ(values_of<double>(doubles), std::vector<double>(expected.begin(), expected.end())) << "case " << index;
    for (DType dtype : {DType::bfloat16, DType::float16}) {
      const Tensor rounded =
          run_kernel_one("Conv",
                         {narrowed(dtype, x.dims, values_of<float>(x)), narrowed(dtype, w.dims, values_of<float>(w)),
                          narrowed(dtype, bias.dims, values_of<float>(bias))},
                         dtype, y, {.attributes = attributes});
      EXPECT_EQ(widened(rounded), widened(narrowed(dtype, y, expected))) << "case " << index << " " << name_of(dtype);
    }
    for (DType dtype : {DType::bfloat16, DType::float16, DType::float32}) {
      const auto as = [&](const Tensor& tensor) {
        return dtype == DType::float32 ? tensor : narrowed(dtype, tensor.dims, values_of<float>(tensor));
      };
      const Tensor local = run_kernel_one("Conv", {as(x), as(w), as(bias), ints({1}, {c.group})}, dtype, y,
                                          {.attributes = attributes, .domain = "tessera"});
      EXPECT_EQ(dtype == DType::float32 ? values_of<float>(local) : widened(local),
                dtype == DType::float32 ? expected : widened(narrowed(dtype, y, expected)))
          << "local case " << index << " " << name_of(dtype);
    }

    Node node;
    node.op_type = "Conv";
    for (const auto& [name, value] : attributes) node.set(name, value);
    if (const auto layout = packed_layout(node, {w.dtype, w.dims})) {
      RunOptions use{.attributes = attributes, .domain = "tessera.cpu"};
      for (const Attribute& attribute : layout->use_attributes) use.attributes[attribute.name] = attribute.value;
      const Tensor packed = packed_weight(*layout, {w});
      EXPECT_EQ(values_of<float>(run_kernel_one("PackedConv", {x, packed, bias}, DType::float32, y, use)), expected)
          << "packed case " << index;
    }
  }
}

TEST(Conv, PadsToTheSameExtent) {
  const Tensor x = floats({1, 1, 4}, {1, 2, 3, 4}), w = floats({1, 1, 2}, {1, 10});
  auto same = [&](const char* where) {
    return values_of<float>(
        run_kernel_one("Conv", {x, w}, DType::float32, {1, 1, 4}, {.attributes = {{"auto_pad", std::string(where)}}}));
  };
  EXPECT_THAT(same("SAME_UPPER"), ElementsAre(21, 32, 43, 4));
  EXPECT_THAT(same("SAME_LOWER"), ElementsAre(10, 21, 32, 43));
}

TEST(Conv, TakesEmptyBatchesAndChannels) {
  const Tensor none = run_kernel_one("Conv", {floats({0, 2, 4}, {}), RandomTensors(1).normal_floats({3, 2, 3})},
                                     DType::float32, {0, 3, 2});
  EXPECT_THAT(values_of<float>(none), IsEmpty());
  const Tensor bias_only = run_kernel_one("Conv", {floats({1, 0, 3}, {}), floats({2, 0, 3}, {}), floats({2}, {5, 6})},
                                          DType::float32, {1, 2, 1});
  EXPECT_THAT(values_of<float>(bias_only), ElementsAre(5, 6));
}

TEST(Conv, NamesAWeightThatDoesNotFit) {
  EXPECT_THAT(
      [] {
        run_kernel_one("Conv", {floats({1, 3, 4}, std::vector<float>(12)), floats({1, 2, 1}, {1, 1})}, DType::float32,
                       {1, 1, 4});
      },
      testing::ThrowsMessage<Error>(testing::HasSubstr("do not fit")));
}

TEST(ConvTranspose, IsExactForIntegersWhateverTheWindows) {
  RandomTensors random(22);
  for (size_t index = 0; index < cases().size(); ++index) {
    const Case& c = cases()[index];
    Dims from;
    for (size_t i = 0; i < c.kernel.size(); ++i) from.push_back(extent_after(c, i));
    const Tensor x = random.integer_floats(with_channels(c.batch, c.in, from), 5);
    const Tensor w = random.integer_floats(with_channels(c.in, c.out / c.group, c.kernel), 5);
    const Tensor bias = random.integer_floats({c.out}, 5);
    const Dims y = with_channels(c.batch, c.out, c.extents);
    const auto expected = transposed_convolved(c, x, w, bias);
    Attributes attributes = attributes_of(c);
    Dims output_padding;
    for (size_t i = 0; i < c.kernel.size(); ++i)
      output_padding.push_back(c.extents[i] - ((from[i] - 1) * c.strides[i] + (c.kernel[i] - 1) * c.dilations[i] + 1 -
                                               c.pads_begin[i] - c.pads_end[i]));
    attributes["output_padding"] = output_padding;
    EXPECT_EQ(
        values_of<float>(run_kernel_one("ConvTranspose", {x, w, bias}, DType::float32, y, {.attributes = attributes})),
        expected)
        << "case " << index;
    const Tensor doubles = run_kernel_one("ConvTranspose",
                                          {converted<double>(DType::float64, x), converted<double>(DType::float64, w),
                                           converted<double>(DType::float64, bias)},
                                          DType::float64, y, {.attributes = attributes});
    EXPECT_EQ(values_of<double>(doubles), std::vector<double>(expected.begin(), expected.end())) << "case " << index;
  }
}

TEST(ConvTranspose, DerivesItsPaddingFromTheExtentsAskedFor) {
  const Tensor x = floats({1, 1, 2}, {1, 10}), w = floats({1, 1, 3}, {1, 2, 3});
  auto run = [&](const Attributes& attributes, int64_t extent) {
    return values_of<float>(
        run_kernel_one("ConvTranspose", {x, w}, DType::float32, {1, 1, extent}, {.attributes = attributes}));
  };
  const Dims two{2};
  EXPECT_THAT(run({{"strides", two}}, 5), ElementsAre(1, 2, 13, 20, 30));
  EXPECT_THAT(run({{"strides", two}, {"output_shape", Dims{4}}}, 4), ElementsAre(2, 13, 20, 30));
  EXPECT_THAT(run({{"strides", two}, {"output_shape", Dims{7}}}, 7), ElementsAre(1, 2, 13, 20, 30, 0, 0));
  EXPECT_THAT(run({{"strides", two}, {"auto_pad", std::string("SAME_UPPER")}}, 4), ElementsAre(1, 2, 13, 20));
  EXPECT_THAT(run({{"strides", two}, {"auto_pad", std::string("SAME_LOWER")}}, 4), ElementsAre(2, 13, 20, 30));
}

TEST(LpPool, IsTheNormOfEachWindow) {
  const Tensor x = floats({1, 1, 4}, {3, -4, 0, 12});
  auto run = [&](const Attributes& attributes, int64_t extent) {
    return values_of<float>(run_kernel_one("LpPool", {x}, DType::float32, {1, 1, extent}, {.attributes = attributes}));
  };
  EXPECT_THAT(run({{"kernel_shape", Dims{2}}}, 3), ElementsAre(5, 4, 12));
  EXPECT_THAT(run({{"kernel_shape", Dims{2}}, {"p", int64_t{1}}}, 3), ElementsAre(7, 4, 12));
  EXPECT_THAT(run({{"kernel_shape", Dims{2}}, {"pads", Dims{1, 0}}}, 4), ElementsAre(3, 5, 4, 12));
  EXPECT_THAT(values_of<float>(run_kernel_one("GlobalLpPool", {x}, DType::float32, {1, 1, 1})), ElementsAre(13));
  EXPECT_THROW(run({{"kernel_shape", Dims{2}}, {"p", int64_t{0}}}, 3), Error);
}

TEST(MaxPool, GivesMaximaAndWhereTheyAre) {
  const Tensor x = floats({1, 1, 3, 3}, {1, 9, 2, 3, 4, 8, 7, 6, 5});
  RunOptions options{.attributes = {{"kernel_shape", Dims{2, 2}}}};
  const auto results =
      run_kernel("MaxPool", {x}, {{DType::float32, {1, 1, 2, 2}}, {DType::int64, {1, 1, 2, 2}}}, options);
  EXPECT_THAT(values_of<float>(results[0]), ElementsAre(9, 9, 7, 8));
  EXPECT_THAT(values_of<int64_t>(results[1]), ElementsAre(1, 1, 6, 5));
  options.attributes["storage_order"] = int64_t{1};
  const auto columns =
      run_kernel("MaxPool", {x}, {{DType::float32, {1, 1, 2, 2}}, {DType::int64, {1, 1, 2, 2}}}, options);
  EXPECT_THAT(values_of<int64_t>(columns[1]), ElementsAre(3, 3, 2, 7));
}

TEST(MaxPool, NeverTakesPadding) {
  const Tensor y = run_kernel_one("MaxPool", {floats({1, 1, 3}, {-5, -4, -3})}, DType::float32, {1, 1, 3},
                                  {.attributes = {{"kernel_shape", Dims{3}}, {"pads", Dims{1, 1}}}});
  EXPECT_THAT(values_of<float>(y), ElementsAre(-4, -3, -3));
}

TEST(MaxPool, DilatesAndHangsOverTheEndInCeilMode) {
  const Tensor x = floats({1, 1, 6}, {1, 2, 3, 4, 5, 6});
  const Tensor dilated = run_kernel_one("MaxPool", {x}, DType::float32, {1, 1, 4},
                                        {.attributes = {{"kernel_shape", Dims{2}}, {"dilations", Dims{2}}}});
  EXPECT_THAT(values_of<float>(dilated), ElementsAre(3, 4, 5, 6));
  const Tensor hanging =
      run_kernel_one("MaxPool", {x}, DType::float32, {1, 1, 2},
                     {.attributes = {{"kernel_shape", Dims{4}}, {"strides", Dims{4}}, {"ceil_mode", int64_t{1}}}});
  EXPECT_THAT(values_of<float>(hanging), ElementsAre(4, 6));
}

TEST(AveragePool, CountsPaddingOnlyOnRequest) {
  const Tensor x = floats({1, 1, 4}, {2, 4, 6, 8});
  Attributes attributes{{"kernel_shape", Dims{2}}, {"strides", Dims{2}}, {"pads", Dims{1, 1}}};
  EXPECT_THAT(
      values_of<float>(run_kernel_one("AveragePool", {x}, DType::float32, {1, 1, 3}, {.attributes = attributes})),
      ElementsAre(2, 5, 8));
  attributes["count_include_pad"] = int64_t{1};
  EXPECT_THAT(
      values_of<float>(run_kernel_one("AveragePool", {x}, DType::float32, {1, 1, 3}, {.attributes = attributes})),
      ElementsAre(1, 5, 4));
}

// Ranks differ in their padding, and one has no results.
TEST(AveragePool, TakesItsPaddingAsAnOperand) {
  const auto run = [](const Tensor& x, std::vector<int64_t> pads, int64_t extent, int64_t counts_padding) {
    return values_of<float>(run_kernel_one(
        "AveragePool", {x, ints({2}, pads)}, DType::float32, {1, 1, extent},
        {.attributes = {{"kernel_shape", Dims{3}}, {"count_include_pad", counts_padding}}, .domain = "tessera"}));
  };
  const Tensor x = floats({1, 1, 4}, {3, 6, 9, 12});
  EXPECT_THAT(run(x, {1, 0}, 3, 0), ElementsAre(4.5, 6, 9));
  EXPECT_THAT(run(x, {0, 1}, 3, 1), ElementsAre(6, 9, 7));
  EXPECT_THAT(run(floats({1, 1, 0}, {}), {0, 0}, 0, 0), ElementsAre());
}

TEST(MaxPool, TakesItsPaddingAsAnOperand) {
  const auto results = run_kernel("MaxPool", {floats({1, 1, 3}, {-5, -4, -6}), ints({2}, {2, 0})},
                                  {{DType::float32, {1, 1, 4}}, {DType::int64, {1, 1, 4}}},
                                  {.attributes = {{"kernel_shape", Dims{2}}}, .domain = "tessera"});
  EXPECT_THAT(values_of<float>(results[0]), ElementsAre(-infinity, -5, -4, -4));
  EXPECT_THAT(values_of<int64_t>(results[1]), ElementsAre(-1, 0, 1, 1));
}

TEST(AveragePool, DoesNotCountWhatCeilModeHangsOver) {
  const Tensor y = run_kernel_one("AveragePool", {floats({1, 1, 5}, {1, 2, 3, 4, 5})}, DType::float32, {1, 1, 3},
                                  {.attributes = {{"kernel_shape", Dims{2}},
                                                  {"strides", Dims{2}},
                                                  {"ceil_mode", int64_t{1}},
                                                  {"count_include_pad", int64_t{1}}}});
  EXPECT_THAT(values_of<float>(y), ElementsAre(1.5, 3.5, 5));
}

TEST(GlobalPool, ReducesEachPlane) {
  const Tensor x = floats({1, 2, 2, 2}, {1, 2, 3, 6, -1, -2, -3, -6});
  EXPECT_THAT(values_of<float>(run_kernel_one("GlobalAveragePool", {x}, DType::float32, {1, 2, 1, 1})),
              ElementsAre(3, -3));
  EXPECT_THAT(values_of<float>(run_kernel_one("GlobalMaxPool", {x}, DType::float32, {1, 2, 1, 1})), ElementsAre(6, -1));
}

TEST(BatchNormalization, UsesTheGivenMoments) {
  const Tensor x = floats({2, 2, 1}, {1, 10, 3, 30}), one = floats({2}, {2, 1}), bias = floats({2}, {0, 5});
  const Tensor mean = floats({2}, {1, 10}), variance = floats({2}, {4, 1});
  EXPECT_THAT(values_of<float>(run_kernel_one("BatchNormalization", {x, one, bias, mean, variance}, DType::float32,
                                              {2, 2, 1}, {.attributes = {{"epsilon", 0.0f}}})),
              ElementsAre(0, 5, 2, 25));
}

}  // namespace
}  // namespace tessera::kernels
