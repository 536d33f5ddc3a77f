#include "tessera/kernels/cpu/image/window_rows.h"

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

template <typename Visit>
void WindowRows::for_places(int64_t begin, int64_t end, const Visit& visit) const {
  const SpatialLoop::Positions inside = loop.inside(2);
  WindowRange r0{}, r1{};
  bool lines_inside = false;
  int64_t left = 0;  // places of a line that are still to come
  for (int64_t place = begin; place < end; ++place, --left) {
    if (left == 0) {
      left = loop.out[2] - place % loop.out[2];
      r0 = loop.range(0, place / (loop.out[1] * loop.out[2]));
      r1 = loop.range(1, place / loop.out[2] % loop.out[1]);
      lines_inside = r0.end - r0.begin == loop.kernel[0] && r1.end - r1.begin == loop.kernel[1];
    }
    const int64_t column = loop.out[2] - left;
    visit(r0, r1, column, lines_inside && inside.has(column));
  }
}

const uint8_t* WindowRows::line_at(const uint8_t* image, const WindowRange& r0, const WindowRange& r1, int64_t column,
                                   int64_t k0, int64_t k1) const {
  const int64_t i0 = r0.first + k0 * loop.dilation[0], i1 = r1.first + k1 * loop.dilation[1];
  return image + ((i0 * loop.in[1] + i1) * loop.in[2] + column * loop.stride[2] - loop.pad[2]) * channels;
}

void WindowRows::gather(const uint8_t* image, int64_t begin, int64_t end, uint8_t zero, uint8_t* rows,
                        int64_t stride) const {
  const bool together = count == channels && loop.dilation[2] == 1;
  const int64_t held = loop.kernel[2] * count;
  for_places(begin, end, [&](const WindowRange& r0, const WindowRange& r1, int64_t column, bool inside) {
    if (inside && together) {
      uint8_t* to = rows;
      for (int64_t k0 = 0; k0 < loop.kernel[0]; ++k0)
        for (int64_t k1 = 0; k1 < loop.kernel[1]; ++k1, to += line()) {
          copy_bytes(line_at(image, r0, r1, column, k0, k1), to, static_cast<size_t>(held));
          std::memset(to + held, zero, static_cast<size_t>(filling));
        }
    } else {
      gather_pieces(image, r0, r1, loop.range(2, column), zero, rows);
    }
    std::memset(rows + row_bytes(), 0, static_cast<size_t>(stride - row_bytes()));
    if (flip != 0) flip_bytes(rows, flip, row_bytes());
    rows += stride;
  });
}

void WindowRows::gather_pieces(const uint8_t* image, const WindowRange& r0, const WindowRange& r1,
                               const WindowRange& r2, uint8_t zero, uint8_t* row) const {
  const bool together = count == channels && loop.dilation[2] == 1;
  const int64_t held = loop.kernel[2] * count;
  for (int64_t k0 = 0; k0 < loop.kernel[0]; ++k0)
    for (int64_t k1 = 0; k1 < loop.kernel[1]; ++k1, row += line()) {
      std::memset(row + held, zero, static_cast<size_t>(filling));
      if (k0 < r0.begin || k0 >= r0.end || k1 < r1.begin || k1 >= r1.end || r2.begin == r2.end) {
        std::memset(row, zero, static_cast<size_t>(held));
        continue;
      }
      const int64_t i0 = r0.first + (k0 - r0.begin) * loop.dilation[0],
                    i1 = r1.first + (k1 - r1.begin) * loop.dilation[1];
      const uint8_t* from = image + ((i0 * loop.in[1] + i1) * loop.in[2] + r2.first) * channels + first;
      if (r2.begin > 0) std::memset(row, zero, static_cast<size_t>(r2.begin * count));
      if (together) {
        copy_bytes(from, row + r2.begin * count, static_cast<size_t>((r2.end - r2.begin) * count));
      } else {
        for (int64_t k2 = r2.begin; k2 < r2.end; ++k2, from += loop.dilation[2] * channels)
          std::memcpy(row + k2 * count, from, static_cast<size_t>(count));
      }
      if (r2.end < loop.kernel[2])
        std::memset(row + r2.end * count, zero, static_cast<size_t>((loop.kernel[2] - r2.end) * count));
    }
}

void WindowRows::point_lines(const uint8_t* image, int64_t begin, int64_t end, uint8_t zero, uint8_t* rows,
                             int64_t stride, const uint8_t** at, int64_t step) const {
  const uint8_t* const image_end = image + loop.in_count() * channels;
  const int64_t next = loop.stride[2] * channels, last = lines() - 1;
  bool was_inside = false;  // the window before, of the same line
  for_places(begin, end, [&](const WindowRange& r0, const WindowRange& r1, int64_t column, bool inside) {
    if (inside && was_inside && column > 0) {
      for (int64_t i = 0; i <= last; ++i) at[i * step] = at[i * step - 1] + next;
    } else if (inside) {
      for (int64_t i = 0; i <= last; ++i)
        at[i * step] = line_at(image, r0, r1, column, i / loop.kernel[1], i % loop.kernel[1]);
    }
    was_inside = inside;
    // No byte behind the image is read.
    if (!inside || at[last * step] + line() > image_end) {
      gather_pieces(image, r0, r1, loop.range(2, column), zero, rows);
      for (int64_t i = 0; i <= last; ++i) at[i * step] = rows + i * line();
      was_inside = false;
    }
    rows += stride;
    ++at;
  });
}

void WindowRows::point(const uint8_t* image, int64_t begin, int64_t end, const uint8_t* zeros, const uint8_t** at,
                       int64_t step) const {
  const int64_t taps = loop.kernel_count(), next = loop.stride[2] * channels;
  bool was_inside = false;  // the window before, of the same line
  for_places(begin, end, [&](const WindowRange& r0, const WindowRange& r1, int64_t column, bool inside) {
    if (inside && was_inside && column > 0) {
      for (int64_t tap = 0; tap < taps; ++tap) at[tap * step] = at[tap * step - 1] + next;
    } else {
      for (int64_t tap = 0; !inside && tap < taps; ++tap) at[tap * step] = zeros;
      loop.for_taps(r0, r1, loop.range(2, column),
                    [&](int64_t tap, int64_t element) { at[tap * step] = image + element * channels + first; });
    }
    was_inside = inside;
    ++at;
  });
}

}  // namespace tessera::kernels
