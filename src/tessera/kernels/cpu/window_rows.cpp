#include "tessera/kernels/cpu/window_rows.h"

#include <cstring>

#include "tessera/base/multiversion.h"

namespace tessera::kernels {
namespace {

TESSERA_MULTIVERSION void flip_bytes(uint8_t* bytes, uint8_t flip, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) bytes[i] ^= flip;
}

// Runs of a few dozen bytes, as images of three channels have, in place of a call for each: ends overlap.
[[gnu::always_inline]] inline void copy_bytes(const uint8_t* from, uint8_t* to, size_t n) {
  constexpr size_t kPiece = 16;
  if (n < kPiece || n > 2 * kPiece) {
    std::memcpy(to, from, n);
    return;
  }
  std::memcpy(to, from, kPiece);
  std::memcpy(to + n - kPiece, from + n - kPiece, kPiece);
}

}  // namespace

bool WindowRows::lies_ready() const {
  for (size_t d = 0; d < loop.in.size(); ++d)
    if (loop.kernel[d] != 1 || loop.stride[d] != 1 || loop.in[d] != loop.out[d] || loop.pad[d] != 0) return false;
  return count == channels && flip == 0;
}

void WindowRows::gather(const uint8_t* image, int64_t begin, int64_t end, uint8_t zero, uint8_t* rows,
                        int64_t stride) const {
  const bool together = count == channels && loop.dilation[2] == 1;
  WindowRange r0{}, r1{};
  int64_t left = 0;  // places of a line that are still to come
  for (int64_t place = begin; place < end; ++place, --left, rows += stride) {
    if (left == 0) {
      left = loop.out[2] - place % loop.out[2];
      r0 = loop.range(0, place / (loop.out[1] * loop.out[2]));
      r1 = loop.range(1, place / loop.out[2] % loop.out[1]);
    }
    const WindowRange r2 = loop.range(2, loop.out[2] - left);
    uint8_t* to = rows;
    for (int64_t k0 = 0; k0 < loop.kernel[0]; ++k0)
      for (int64_t k1 = 0; k1 < loop.kernel[1]; ++k1, to += loop.kernel[2] * count) {
        if (k0 < r0.begin || k0 >= r0.end || k1 < r1.begin || k1 >= r1.end || r2.begin == r2.end) {
          std::memset(to, zero, static_cast<size_t>(loop.kernel[2] * count));
          continue;
        }
        const int64_t i0 = r0.first + (k0 - r0.begin) * loop.dilation[0],
                      i1 = r1.first + (k1 - r1.begin) * loop.dilation[1];
        const uint8_t* from = image + ((i0 * loop.in[1] + i1) * loop.in[2] + r2.first) * channels + first;
        if (r2.begin > 0) std::memset(to, zero, static_cast<size_t>(r2.begin * count));
        if (together) {
          copy_bytes(from, to + r2.begin * count, static_cast<size_t>((r2.end - r2.begin) * count));
        } else {
          for (int64_t k2 = r2.begin; k2 < r2.end; ++k2, from += loop.dilation[2] * channels)
            std::memcpy(to + k2 * count, from, static_cast<size_t>(count));
        }
        if (r2.end < loop.kernel[2])
          std::memset(to + r2.end * count, zero, static_cast<size_t>((loop.kernel[2] - r2.end) * count));
      }
    std::memset(to, 0, static_cast<size_t>(stride - row_bytes()));
    if (flip != 0) flip_bytes(rows, flip, row_bytes());
  }
}

void WindowRows::point(const uint8_t* image, int64_t begin, int64_t end, const uint8_t* zeros, const uint8_t** at,
                       int64_t step) const {
  const int64_t taps = loop.kernel_count();
  WindowRange r0{}, r1{};
  int64_t left = 0;     // places of a line that are still to come
  bool inside = false;  // whether the window before is, all of it
  for (int64_t place = begin; place < end; ++place, --left, ++at) {
    if (left == 0) {
      left = loop.out[2] - place % loop.out[2];
      r0 = loop.range(0, place / (loop.out[1] * loop.out[2]));
      r1 = loop.range(1, place / loop.out[2] % loop.out[1]);
      inside = false;
    }
    const WindowRange r2 = loop.range(2, loop.out[2] - left);
    const bool was_inside = inside;
    inside = r0.end - r0.begin == loop.kernel[0] && r1.end - r1.begin == loop.kernel[1] &&
             r2.end - r2.begin == loop.kernel[2];
    if (inside && was_inside) {
      for (int64_t tap = 0; tap < taps; ++tap) at[tap * step] = at[tap * step - 1] + loop.stride[2] * channels;
      continue;
    }
    for (int64_t tap = 0; !inside && tap < taps; ++tap) at[tap * step] = zeros;
    loop.for_taps(r0, r1, r2,
                  [&](int64_t tap, int64_t element) { at[tap * step] = image + element * channels + first; });
  }
}

}  // namespace tessera::kernels
