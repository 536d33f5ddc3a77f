#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <span>

#include "kernels/run_kernel.h"

namespace tessera::kernels {
namespace {

using testing::ElementsAre;

TEST(QuantizeLinear, RoundsRowsOfFloatsAsSingleElements) {
  const std::vector<float> x = {0, 0.5F, 1.5F, -0.5F, 2.5F, 300, -300, infinity, -infinity, std::nanf(""), 1e30F};
  const auto count = static_cast<int64_t>(x.size());
  const Tensor one = run_kernel_one("QuantizeLinear",
                                    {floats({count}, x), floats({}, {1}), Tensor::of<uint8_t>(DType::uint8, {}, {3})},
                                    DType::uint8, {count});
  EXPECT_THAT(values_of<uint8_t>(one), ElementsAre(3, 3, 5, 3, 5, 255, 0, 255, 0, 0, 255));
  const Tensor with_sign = run_kernel_one("QuantizeLinear", {floats({count}, x), floats({}, {0.5F})}, DType::int8,
                                          {count}, {.attributes = {{"output_dtype", int64_t{3}}}});
  EXPECT_THAT(values_of<int8_t>(with_sign), ElementsAre(0, 1, 3, -1, 5, 127, -128, 127, -128, 0, 127));
}

/// Codes with scales and zero points, and the floats that they stand for, exactly: scales are powers of two.
struct Coded {
  Tensor codes, floats, scale, zero;
  Attributes attributes;
};

Tensor cast(const Tensor& x, DType type) {
  return run_kernel_one("Cast", {x}, type, x.dims, {.attributes = {{"to", static_cast<int64_t>(type)}}});
}

/// `axis`: of the scales, -1 for one scale; `block`: elements along the axis that share one, 0 for none.
Coded coded(DType type, const Dims& dims, int64_t axis, int64_t block) {
  const bool has_sign = type == DType::int8 || type == DType::int16 || type == DType::int4 || type == DType::int2;
  const int64_t half = int64_t{1} << (bits_of(type) - 1), least = has_sign ? -half : 0;
  Dims of_scale;
  if (block > 0) {
    of_scale = dims;
    of_scale[axis] = (dims[axis] + block - 1) / block;
  } else if (axis >= 0) {
    of_scale = {dims[axis]};
  }
  std::vector<float> scales, zeros, numbers, codes;
  for (int64_t i = 0; i < count_of(of_scale); ++i) {
    scales.push_back(std::ldexp(1.0F, static_cast<int>(i * 5 % 7) - 3));
    zeros.push_back(static_cast<float>(least + i % (2 * half)));
  }
  const int64_t inner = axis < 0 ? 1 : count_of(std::span(dims).subspan(axis + 1));
  for (int64_t i = 0; i < count_of(dims); ++i) {
    const int64_t along = axis < 0 ? 0 : i / inner % dims[axis];
    int64_t place = along;
    if (block > 0) place = (i / inner / dims[axis] * of_scale[axis] + along / block) * inner + i % inner;
    codes.push_back(static_cast<float>(least + i * 11 % (2 * half)));
    numbers.push_back((codes.back() - zeros[place]) * scales[place]);
  }
  Attributes attributes;
  if (axis >= 0) attributes.emplace("axis", axis);
  if (block > 0) attributes.emplace("block_size", block);
  return {cast(floats(dims, codes), type), floats(dims, numbers), floats(of_scale, scales),
          cast(floats(of_scale, zeros), type), attributes};
}

// Elements come in blocks, scales in runs of one scale or of one each.
TEST(QuantizeLinear, AndBackIsExactForAllScalesOfAllLengths) {
  for (const DType type :
       {DType::int8, DType::uint8, DType::int16, DType::int4, DType::uint4, DType::int2, DType::uint2})
    for (const Dims& dims :
         {Dims{0, 3}, Dims{1, 1}, Dims{1, 255}, Dims{257, 1}, Dims{2, 128}, Dims{3, 7, 5}, Dims{13, 79}})
      for (int64_t axis = -1; axis < static_cast<int64_t>(dims.size()); ++axis)
        for (const int64_t block : {0, 4}) {
          if (axis < 0 && block > 0) continue;
          SCOPED_TRACE(fmt::format("{} [{}] axis {} block {}", name_of(type), fmt::join(dims, ","), axis, block));
          const Coded wanted = coded(type, dims, axis, block);
          for (const int threads : {1, 2}) {
            const RunOptions options{.attributes = wanted.attributes, .threads = threads};
            const Tensor back = run_kernel_one("DequantizeLinear", {wanted.codes, wanted.scale, wanted.zero},
                                               DType::float32, dims, options);
            EXPECT_EQ(values_of<float>(back), values_of<float>(wanted.floats));
            const Tensor codes =
                run_kernel_one("QuantizeLinear", {wanted.floats, wanted.scale, wanted.zero}, type, dims, options);
            EXPECT_EQ(values_of<float>(cast(codes, DType::float32)),
                      values_of<float>(cast(wanted.codes, DType::float32)));
          }
        }
}

Tensor of_type(DType type, Dims dims, const std::vector<float>& values) {
  if (type == DType::float32) return floats(std::move(dims), values);
  if (type == DType::float64)
    return Tensor::of(type, std::move(dims), std::vector<double>(values.begin(), values.end()));
  return narrowed(type, std::move(dims), values);
}

/// The operators that DynamicQuantizeLinear stands for, one after the other: codes, scale, zero point.
std::vector<Tensor> quantized_step_by_step(const Tensor& x) {
  const DType type = x.dtype;
  const auto one = [](const char* op, const std::vector<Tensor>& inputs, DType dtype, Attributes attributes = {}) {
    return run_kernel_one(op, inputs, dtype, {}, {.attributes = std::move(attributes)});
  };
  const auto number = [&](float value) { return of_type(type, {}, {value}); };
  std::vector<int64_t> axes;
  for (size_t d = 0; d < x.dims.size(); ++d) axes.push_back(static_cast<int64_t>(d));
  const auto of_all = [&](const char* op) {
    return one(op, {x, ints({static_cast<int64_t>(axes.size())}, axes)}, type, {{"keepdims", int64_t{0}}});
  };
  const Tensor zero = number(0), least = one("Min", {of_all("ReduceMin"), zero}, type);
  const Tensor range = one("Sub", {one("Max", {of_all("ReduceMax"), zero}, type), least}, type);
  const Tensor scale = one(
      "Where", {one("Equal", {range, zero}, DType::boolean), number(1), one("Div", {range, number(255)}, type)}, type);
  const Tensor place = one("Round", {one("Sub", {zero, one("Div", {least, scale}, type)}, type)}, type);
  const Tensor zero_point = one("Cast", {one("Clip", {place, zero, number(255)}, type)}, DType::uint8,
                                {{"to", static_cast<int64_t>(DType::uint8)}});
  return {run_kernel_one("QuantizeLinear", {x, scale, zero_point}, DType::uint8, x.dims), scale, zero_point};
}

bool are_same(const Tensor& a, const Tensor& b) {
  return a.bytes == b.bytes && std::memcmp(a.data, b.data, a.bytes) == 0;
}

void check_dynamic(DType type, const Dims& dims, const std::vector<float>& elements) {
  const Tensor x = of_type(type, dims, elements);
  const std::vector<Tensor> expected = quantized_step_by_step(x);
  for (const int threads : {1, 2}) {
    const std::vector<Tensor> results = run_kernel(
        "DynamicQuantizeLinear", {x}, {{DType::uint8, dims}, {type, {}}, {DType::uint8, {}}}, {.threads = threads});
    SCOPED_TRACE(fmt::format("{} {}, {} threads", name_of(type), elements.size(), threads));
    EXPECT_TRUE(are_same(results[0], expected[0]));
    EXPECT_TRUE(are_same(results[2], expected[2]));
    const auto is_nan = [](const Tensor& number) {
      return values_of<uint8_t>(run_kernel_one("IsNaN", {number}, DType::boolean, {}))[0];
    };
    EXPECT_TRUE(are_same(results[1], expected[1]) || (is_nan(results[1]) && is_nan(expected[1])));
  }
}

constexpr DType kFloats[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16};

TEST(DynamicQuantizeLinear, EqualsTheOperatorsThatItStandsFor) {
  std::mt19937 random(17);
  for (const DType type : kFloats)
    for (const int64_t count : {1, 2, 15, 1023, 1024, 1025, 65535, 65536, 65537, 300001}) {
      std::uniform_real_distribution<float> by(-3, 5);
      std::vector<float> elements(static_cast<size_t>(count));
      for (float& element : elements) element = by(random);
      check_dynamic(type, {count}, elements);
      elements.back() = 40;  // the range is that of all elements, also of the last
      check_dynamic(type, {1, count, 1}, elements);
    }
}

TEST(DynamicQuantizeLinear, TakesRangesOfAnyKind) {
  const float nan = std::nanf("");
  for (const DType type : kFloats)
    for (const std::vector<float>& elements : std::vector<std::vector<float>>{{0, 0, -0.0F},
                                                                              {2, 3, 4},
                                                                              {-2, -3, -4},
                                                                              {1e-30F, 0},
                                                                              {-6e4F, 6e4F},
                                                                              {infinity, 1},
                                                                              {-infinity, 1, 2},
                                                                              {infinity, -infinity},
                                                                              {nan, 1, -1},
                                                                              {1, nan},
                                                                              {nan, infinity}})
      check_dynamic(type, {static_cast<int64_t>(elements.size())}, elements);
  for (const DType type : kFloats) check_dynamic(type, {}, {-1.5F});
}

TEST(DynamicQuantizeLinear, GivesCodesAlone) {
  const Tensor x = floats({4}, {-1, 0, 1, 4});
  const std::vector<Tensor> all =
      run_kernel("DynamicQuantizeLinear", {x}, {{DType::uint8, {4}}, {DType::float32, {}}, {DType::uint8, {}}});
  EXPECT_TRUE(are_same(run_kernel_one("DynamicQuantizeLinear", {x}, DType::uint8, {4}), all[0]));
}

TEST(DynamicQuantizeLinear, GivesNoElementsAScaleOfOne) {
  const std::vector<Tensor> results = run_kernel("DynamicQuantizeLinear", {floats({0, 3}, {})},
                                                 {{DType::uint8, {0, 3}}, {DType::float32, {}}, {DType::uint8, {}}});
  EXPECT_THAT(values_of<float>(results[1]), ElementsAre(1));
  EXPECT_THAT(values_of<uint8_t>(results[2]), ElementsAre(0));
}

}  // namespace
}  // namespace tessera::kernels
