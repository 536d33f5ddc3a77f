#pragma once

#include "tessera/kernels/cpu/image/windows.h"

/// Convolutions by plain loops: for float64, and for cases that oneDNN does not take.
namespace tessera::kernels {

struct PlainConvolution {
  SpatialLoop loop;
  int64_t batch, group, in, out;  ///< `in`, `out`: channels per group
  int threads;
};

/// y[b, o, p] = bias[o] + Σ x[b, i, p·stride - pad + k·dilation] · w[o, i, k]; `bias` may be null.
template <typename T>
void plain_convolution(const PlainConvolution& c, const T* x, const T* w, const T* bias, T* y) {
  const SpatialLoop& loop = c.loop;
  const int64_t planes = c.batch * c.group * c.out;
#pragma omp parallel for num_threads(c.threads) schedule(static)
  for (int64_t plane = 0; plane < planes; ++plane) {
    const int64_t channel = plane % (c.group * c.out), group = channel / c.out, image = plane / (c.group * c.out);
    const T* inputs = x + (image * c.group + group) * c.in * loop.in_count();
    const T* weights = w + channel * c.in * loop.kernel_count();
    T* result = y + plane * loop.out_count();
    for (int64_t p0 = 0; p0 < loop.out[0]; ++p0)
      for (int64_t p1 = 0; p1 < loop.out[1]; ++p1)
        for (int64_t p2 = 0; p2 < loop.out[2]; ++p2) {
          const WindowRange r0 = loop.range(0, p0), r1 = loop.range(1, p1), r2 = loop.range(2, p2);
          T sum = bias ? bias[channel] : T{0};
          for (int64_t i = 0; i < c.in; ++i)
            for (int64_t k0 = r0.begin; k0 < r0.end; ++k0)
              for (int64_t k1 = r1.begin; k1 < r1.end; ++k1) {
                const int64_t at0 = r0.first + (k0 - r0.begin) * loop.dilation[0];
                const int64_t at1 = r1.first + (k1 - r1.begin) * loop.dilation[1];
                const T* row = inputs + ((i * loop.in[0] + at0) * loop.in[1] + at1) * loop.in[2] + r2.first;
                const T* taps = weights + ((i * loop.kernel[0] + k0) * loop.kernel[1] + k1) * loop.kernel[2];
                for (int64_t k2 = r2.begin; k2 < r2.end; ++k2)
                  sum += row[(k2 - r2.begin) * loop.dilation[2]] * taps[k2];
              }
          *result++ = sum;
        }
  }
}

/// The transposed convolution, scattering x into y: `loop` is that of the convolution from y (its `in`) to x (its
/// `out`). w is [group·in, out, kernel...].
template <typename T>
void plain_transposed_convolution(const PlainConvolution& c, const T* x, const T* w, const T* bias, T* y) {
  const SpatialLoop& loop = c.loop;
  const int64_t planes = c.batch * c.group * c.out;
#pragma omp parallel for num_threads(c.threads) schedule(static)
  for (int64_t plane = 0; plane < planes; ++plane) {
    const int64_t channel = plane % (c.group * c.out), group = channel / c.out, image = plane / (c.group * c.out);
    T* result = y + plane * loop.in_count();
    std::fill_n(result, loop.in_count(), bias ? bias[channel] : T{0});
    for (int64_t i = 0; i < c.in; ++i) {
      const T* inputs = x + ((image * c.group + group) * c.in + i) * loop.out_count();
      const T* weights = w + ((group * c.in + i) * c.out + channel % c.out) * loop.kernel_count();
      for (int64_t p0 = 0; p0 < loop.out[0]; ++p0)
        for (int64_t p1 = 0; p1 < loop.out[1]; ++p1)
          for (int64_t p2 = 0; p2 < loop.out[2]; ++p2) {
            const WindowRange r0 = loop.range(0, p0), r1 = loop.range(1, p1), r2 = loop.range(2, p2);
            const T value = *inputs++;
            for (int64_t k0 = r0.begin; k0 < r0.end; ++k0)
              for (int64_t k1 = r1.begin; k1 < r1.end; ++k1) {
                const int64_t at0 = r0.first + (k0 - r0.begin) * loop.dilation[0];
                const int64_t at1 = r1.first + (k1 - r1.begin) * loop.dilation[1];
                T* row = result + (at0 * loop.in[1] + at1) * loop.in[2] + r2.first;
                const T* taps = weights + (k0 * loop.kernel[1] + k1) * loop.kernel[2];
                for (int64_t k2 = r2.begin; k2 < r2.end; ++k2)
                  row[(k2 - r2.begin) * loop.dilation[2]] += value * taps[k2];
              }
          }
    }
  }
}

}  // namespace tessera::kernels
