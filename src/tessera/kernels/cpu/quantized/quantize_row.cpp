#include "tessera/kernels/cpu/quantized/quantize_row.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "tessera/base/multiversion.h"
#include "tessera/kernels/cpu/quantized/code_lanes.h"

namespace tessera::kernels {
namespace {

template <typename To>
[[gnu::always_inline]] inline void quantize_bytes(const float* x, float scale, int zero, To* out, int64_t n) {
  const Coder<To> coder(zero);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = coder.code(x[i] / scale);
}
TESSERA_MULTIVERSION void quantize_unsigned_row(const float* x, float scale, int zero, uint8_t* out, int64_t n) {
  quantize_bytes(x, scale, zero, out, n);
}
TESSERA_MULTIVERSION void quantize_signed_row(const float* x, float scale, int zero, int8_t* out, int64_t n) {
  quantize_bytes(x, scale, zero, out, n);
}
TESSERA_MULTIVERSION void dequantize_unsigned_row(const uint8_t* x, float scale, int zero, float* out, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(x[i] - zero) * scale;
}
TESSERA_MULTIVERSION void dequantize_signed_row(const int8_t* x, float scale, int zero, float* out, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(x[i] - zero) * scale;
}

// Four vectors at once, since a comparison takes some cycles until the next can use its result.
TESSERA_MULTIVERSION void widen_range_by_row(const float* x, int64_t n, float& least, float& most) {
  constexpr int kVectors = 4;
  LaneFloats low[kVectors] = {}, high[kVectors] = {};  // 0 is in every range
  LaneInts magnitude = {};  // the greatest, as bits, which are in order; those of NaN are above those of infinity
  const auto take = [&](int v, const LaneFloats& part) __attribute__((always_inline)) {
    low[v] = part < low[v] ? part : low[v];
    high[v] = part > high[v] ? part : high[v];
    LaneInts bits;
    std::memcpy(&bits, &part, sizeof bits);
    bits &= 0x7fffffff;
    magnitude = bits > magnitude ? bits : magnitude;
  };
  int64_t i = 0;
  for (; i + kVectors * kCodeLanes <= n; i += kVectors * kCodeLanes)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      LaneFloats part;
      load_lanes(x + i + v * kCodeLanes, kCodeLanes, part);
      take(v, part);
    }
  for (; i < n; i += kCodeLanes) {
    LaneFloats part;
    load_lanes(x + i, std::min(kCodeLanes, n - i), part);
    take(0, part);
  }
  for (int v = 0; v < kVectors; ++v)
    for (int64_t l = 0; l < kCodeLanes; ++l) {
      least = low[v][l] < least ? low[v][l] : least;
      most = high[v][l] > most ? high[v][l] : most;
    }
  for (int64_t l = 0; l < kCodeLanes; ++l)
    if (magnitude[l] > 0x7f800000) least = most = std::numeric_limits<float>::quiet_NaN();
}

}  // namespace

void widen_range(const float* x, int64_t n, float& least, float& most) {
  widen_range_by_row(x, n, least, most);
}

int byte_at(DType codes, const void* data, int64_t i) {
  return codes == DType::uint8 ? static_cast<const uint8_t*>(data)[i] : static_cast<const int8_t*>(data)[i];
}

void quantize_row(DType codes, const float* x, float scale, int zero, std::byte* out, int64_t n) {
  if (codes == DType::uint8)
    quantize_unsigned_row(x, scale, zero, reinterpret_cast<uint8_t*>(out), n);
  else
    quantize_signed_row(x, scale, zero, reinterpret_cast<int8_t*>(out), n);
}

void dequantize_row(DType codes, const std::byte* x, float scale, int zero, float* out, int64_t n) {
  if (codes == DType::uint8)
    dequantize_unsigned_row(reinterpret_cast<const uint8_t*>(x), scale, zero, out, n);
  else
    dequantize_signed_row(reinterpret_cast<const int8_t*>(x), scale, zero, out, n);
}

}  // namespace tessera::kernels
