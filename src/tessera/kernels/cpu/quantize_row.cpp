#include "tessera/kernels/cpu/quantize_row.h"

#include "tessera/base/multiversion.h"
#include "tessera/kernels/cpu/code_lanes.h"

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

}  // namespace

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
