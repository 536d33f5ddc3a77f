#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "tessera/ir/dtype.h"
#include "tessera/ir/reduction.h"

/// Reductions spelt out one element after the other, to compare a backend's bits with.
namespace tessera::comm {

using Bytes = std::vector<std::byte>;

struct Half {
  uint16_t bits;
};
struct Brain {
  uint16_t bits;
};
struct Truth {
  uint8_t value;
};

/// The value nearest to `value` among multiples of 2^(exponent - fraction_bits), ties to even.
inline double round_to_grid(double value, int fraction_bits, int least_exponent) {
  if (value == 0 || !std::isfinite(value)) return value;
  double grid = std::ldexp(1.0, std::max(std::ilogb(value), least_exponent) - fraction_bits);
  return std::nearbyint(value / grid) * grid;
}

inline float decode(Half half) {
  int exponent = (half.bits >> 10) & 31, fraction = half.bits & 1023;
  double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  if (exponent == 31) magnitude = fraction == 0 ? INFINITY : NAN;
  return static_cast<float>(half.bits & 0x8000 ? -magnitude : magnitude);
}

inline float decode(Brain brain) {
  uint32_t bits = static_cast<uint32_t>(brain.bits) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline void encode(float value, Half& half) {
  double magnitude = round_to_grid(std::fabs(value), 10, -14);
  int exponent = magnitude == 0 ? -14 : std::max(std::ilogb(magnitude), -14);
  if (std::isnan(value))
    half.bits = 0x7e00;
  else if (magnitude > 65504)
    half.bits = 0x7c00;
  else  // a fraction that reaches 1 carries into the exponent field
    half.bits = static_cast<uint16_t>(((exponent + 14) << 10) + std::lround(std::ldexp(magnitude, 10 - exponent)));
  if (std::signbit(value)) half.bits |= 0x8000;
}

inline void encode(float value, Brain& brain) {
  auto rounded = static_cast<float>(round_to_grid(value, 7, -126));
  uint32_t bits;
  std::memcpy(&bits, &rounded, sizeof bits);
  brain.bits = static_cast<uint16_t>(bits >> 16);
}

template <typename W>
W combine(Reduction reduction, W a, W b) {
  switch (reduction) {
    case Reduction::max:
      return a > b ? a : b;
    case Reduction::min:
      return a < b ? a : b;
    default:
      if constexpr (std::is_integral_v<W>)
        return static_cast<W>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
      else
        return a + b;
  }
}

template <typename T>
T reduce_one(Reduction reduction, const std::vector<T>& elements) {
  if constexpr (std::is_same_v<T, Truth>) {
    bool any = false, all = true;
    for (Truth element : elements) any |= element.value != 0, all &= element.value != 0;
    return Truth{reduction == Reduction::min ? all : any};
  } else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Brain>) {
    float sum = decode(elements[0]);
    for (size_t j = 1; j < elements.size(); ++j) sum = combine(reduction, sum, decode(elements[j]));
    if (reduction == Reduction::mean) sum /= static_cast<float>(elements.size());
    T result;
    encode(sum, result);
    return result;
  } else {
    T sum = elements[0];
    for (size_t j = 1; j < elements.size(); ++j) sum = combine(reduction, sum, elements[j]);
    if (reduction != Reduction::mean) return sum;
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(sum / static_cast<int64_t>(elements.size()));
    else
      return sum / static_cast<T>(elements.size());
  }
}

template <typename T>
Bytes reduce_as(Reduction reduction, const std::vector<Bytes>& inputs) {
  size_t count = inputs[0].size() / sizeof(T);
  Bytes result(count * sizeof(T));
  std::vector<T> elements(inputs.size());
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < inputs.size(); ++j) std::memcpy(&elements[j], inputs[j].data() + i * sizeof(T), sizeof(T));
    T reduced = reduce_one(reduction, elements);
    std::memcpy(result.data() + i * sizeof(T), &reduced, sizeof(T));
  }
  return result;
}

/// Calls visit(T{}) with the element type of `dtype`.
template <typename Visit>
auto with_element(DType dtype, Visit visit) {
  switch (dtype) {
    case DType::float32:
      return visit(float{});
    case DType::float64:
      return visit(double{});
    case DType::float16:
      return visit(Half{});
    case DType::bfloat16:
      return visit(Brain{});
    case DType::boolean:
      return visit(Truth{});
    case DType::int8:
      return visit(int8_t{});
    case DType::int16:
      return visit(int16_t{});
    case DType::int32:
      return visit(int32_t{});
    case DType::int64:
      return visit(int64_t{});
    case DType::uint8:
      return visit(uint8_t{});
    case DType::uint16:
      return visit(uint16_t{});
    case DType::uint32:
      return visit(uint32_t{});
    case DType::uint64:
      return visit(uint64_t{});
    default:
      throw std::invalid_argument("no element type");
  }
}

/// The reduction of all inputs, which have one length, element by element in their order.
inline Bytes reference_reduction(DType dtype, Reduction reduction, const std::vector<Bytes>& inputs) {
  return with_element(dtype, [&](auto element) { return reduce_as<decltype(element)>(reduction, inputs); });
}

/// `count` random elements: floats of many magnitudes and both signs, or whole numbers between -128 and 127; any
/// integers.
inline Bytes random_elements(DType dtype, int64_t count, uint64_t seed, bool whole_numbers = false) {
  return with_element(dtype, [&](auto example) {
    using T = decltype(example);
    std::mt19937_64 random(seed);
    Bytes bytes(static_cast<size_t>(count) * sizeof(T));
    for (int64_t i = 0; i < count; ++i) {
      T element;
      uint64_t word = random();
      auto real = static_cast<float>(std::ldexp(static_cast<double>(word >> 11) * 0x1p-52 - 1, word & 15) / 64);
      if (whole_numbers) real = static_cast<float>(static_cast<int8_t>(word));
      if constexpr (std::is_floating_point_v<T>)
        element = static_cast<T>(real);
      else if constexpr (std::is_same_v<T, Truth>)
        element.value = word & 1;
      else if constexpr (std::is_integral_v<T>)
        element = static_cast<T>(word);
      else
        encode(real, element);
      std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof(T), &element, sizeof(T));
    }
    return bytes;
  });
}

}  // namespace tessera::comm
