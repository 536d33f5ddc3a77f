#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

/// Elementary functions that inline into loops and vectorise: no branches, no tables, no calls. An element gets the
/// same bits at any place in a tensor and any vector width. The float32 functions are within 2 ulp
/// (tests/kernels measures them against double); their polynomials are minimax fits to the functions on the intervals
/// named. The float64 overloads are the C library's, so that the same source serves both.
namespace tessera::kernels::vector_math {

/// Rounds to the nearest integer (ties to even) by adding a number whose unit in the last place is one; the integer is
/// then in the sum's low bits. For |x| < 2^22.
struct Rounded {
  float value;
  int32_t integer;
};
inline Rounded round_to_integer(float x) {
  constexpr float shift = 0x1.8p23f;
  const float shifted = x + shift;
  return {shifted - shift, std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(shift)};
}

inline float power_of_two(int32_t exponent) {
  return std::bit_cast<float>((exponent + 127) << 23);
}

/// exp(r) - 1 for |r| <= ln(2)/2.
inline float exp_minus_one_reduced(float r) {
  float p = 1.381314450e-03f;
  p = p * r + 8.369418836e-03f;
  p = p * r + 4.166845679e-02f;
  p = p * r + 1.666651479e-01f;
  p = p * r + 4.999999305e-01f;
  return p * r * r + r;
}

/// exp(x) = 2^n exp(r), r = x - n ln(2) with ln(2) in two parts, the first of so few bits that its product is exact.
inline float exp(float x) {
  x = x > 89.0f ? 89.0f : x;
  x = x < -104.0f ? -104.0f : x;
  const auto [n, integer] = round_to_integer(x * 1.442695041f);
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  const float value = exp_minus_one_reduced(r) + 1.0f;
  const int32_t half = integer >> 1;  // two factors reach the subnormals and infinity
  return value * power_of_two(half) * power_of_two(integer - half);
}
inline double exp(double x) {
  return std::exp(x);
}

inline float expm1(float x) {
  const float small = exp_minus_one_reduced(x);
  const float large = exp(x) - 1.0f;
  return std::fabs(x) < 0.34f ? small : large;
}
inline double expm1(double x) {
  return std::expm1(x);
}

/// log(x) = e ln(2) + log(1 + f), with 1 + f in [sqrt(1/2), sqrt(2)).
inline float log(float x) {
  const bool subnormal = x < 0x1p-126f;
  const float scaled = subnormal ? x * 0x1p23f : x;
  const uint32_t bits = std::bit_cast<uint32_t>(scaled);
  const int32_t exponent = static_cast<int32_t>(bits - 0x3f3504f3u) >> 23;  // 0x3f3504f3 is sqrt(1/2)
  const float f = std::bit_cast<float>(bits - (static_cast<uint32_t>(exponent) << 23)) - 1.0f;
  const float e = static_cast<float>(exponent - (subnormal ? 23 : 0));
  float p = 6.746640326e-02f;
  p = p * f - 1.167565177e-01f;
  p = p * f + 1.188816233e-01f;
  p = p * f - 1.240558893e-01f;
  p = p * f + 1.421955235e-01f;
  p = p * f - 1.666799585e-01f;
  p = p * f + 2.000211866e-01f;
  p = p * f - 2.500000960e-01f;
  p = p * f + 3.333331260e-01f;
  const float square = f * f;
  const float tail = p * f * square - e * 2.12194440e-4f - 0.5f * square;
  const float value = (tail + f) + e * 0.693359375f;
  const float infinity = std::bit_cast<float>(0x7f800000);
  const float nan = std::bit_cast<float>(0x7fc00000);
  const float positive = x < infinity ? value : x;  // infinity and NaN pass
  const float real = x < 0.0f ? nan : positive;
  return x == 0.0f ? -infinity : real;
}
inline double log(double x) {
  return std::log(x);
}

/// log(1 + x) for x >= 0; adds the rounding error of 1 + x back.
inline float log1p(float x) {
  const float sum = 1.0f + x;
  return log(sum) + (x - (sum - 1.0f)) / sum;
}
inline double log1p(double x) {
  return std::log1p(x);
}

/// An odd polynomial below 0.625, 1 - 2 / (exp(2|x|) + 1) above.
inline float tanh(float x) {
  const float magnitude = std::fabs(x);
  const float square = x * x;
  float p = -5.704986770e-03f;
  p = p * square + 2.063908700e-02f;
  p = p * square - 5.373971500e-02f;
  p = p * square + 1.333144220e-01f;
  p = p * square - 3.333328194e-01f;
  const float small = std::fabs(p * square * x + x);
  const float large = 1.0f - 2.0f / (exp(2.0f * magnitude) + 1.0f);
  return std::copysign(magnitude < 0.625f ? small : large, x);
}
inline double tanh(double x) {
  return std::tanh(x);
}

/// 1 / (1 + exp(-x)), from exp(-|x|) so that it neither overflows nor loses the small values.
template <typename T>
T sigmoid(T x) {
  const T e = exp(-std::fabs(x));
  return (x < T(0) ? e : T(1)) / (T(1) + e);
}

/// An odd polynomial below 0.93; above, 1 - exp(-q(|x|)), q being a fit to -log(erfc).
inline float erf(float x) {
  const float magnitude = std::fabs(x);
  const float square = x * x;
  float p = 8.316775278e-05f;
  p = p * square - 8.130012707e-04f;
  p = p * square + 5.199906675e-03f;
  p = p * square - 2.685894151e-02f;
  p = p * square + 1.128368719e-01f;
  p = p * square - 3.761263319e-01f;
  p = p * square + 1.283791671e-01f;
  const float small = p * x + x;
  const float t = magnitude > 3.95f ? 3.95f : magnitude;
  float q = -1.982200317e-04f;
  q = q * t + 3.065493703e-03f;
  q = q * t - 2.231522552e-02f;
  q = q * t + 1.041137024e-01f;
  q = q * t + 6.369760585e-01f;
  q = q * t + 1.127797256e+00f;
  q = q * t + 1.664446391e-04f;
  const float large = std::copysign(1.0f - exp(-q), x);
  return magnitude < 0.93f ? small : large;
}
inline double erf(double x) {
  return std::erf(x);
}

/// Below this magnitude sin and cos hold; callers send larger arguments to std::sin(double).
constexpr float trigonometric_limit = 0x1p20f;

/// sin(x + quarters·pi/2). x - n pi/2 is taken in double, with pi/2 in two parts, the first of 33 bits.
inline float sin_of_quarters(float x, uint64_t quarters) {
  constexpr double shift = 0x1.8p52;
  const double wide = x;
  const double shifted = wide * 0.63661977236758134308 + shift;
  const double n = shifted - shift;
  const uint64_t quadrant = std::bit_cast<uint64_t>(shifted) + quarters;
  const double r = (wide - n * 0x1.921fb544p0) - n * 0x1.0b4611a626331p-34;
  const double square = r * r;
  double s = 2.718046467e-06;
  s = s * square - 1.983930441e-04;
  s = s * square + 8.333329281e-03;
  s = s * square - 1.666666664e-01;
  s = s * square * r + r;
  double c = -2.720504625e-07;
  c = c * square + 2.479945155e-05;
  c = c * square - 1.388888347e-03;
  c = c * square + 4.166666662e-02;
  c = c * square * square - 0.5 * square + 1.0;
  const double value = (quadrant & 1) != 0 ? c : s;
  return static_cast<float>((quadrant & 2) != 0 ? -value : value);
}
inline float sin(float x) {
  const float value = sin_of_quarters(x, 0);
  return x == 0.0f ? x : value;  // keeps the sign of zero
}
inline float cos(float x) {
  return sin_of_quarters(x, 1);
}
inline double sin(double x) {
  return std::sin(x);
}
inline double cos(double x) {
  return std::cos(x);
}

}  // namespace tessera::kernels::vector_math
