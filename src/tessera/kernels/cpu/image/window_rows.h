#pragma once

#include "tessera/kernels/cpu/image/windows.h"

namespace tessera::kernels {

/// Reads the windows of a convolution out of an image of bytes whose channels come last, as rows of a matrix.
struct WindowRows {
  SpatialLoop loop;
  int64_t channels = 0;          ///< of the image
  int64_t first = 0, count = 0;  ///< the channels that are read
  uint8_t flip = 0;              ///< of each byte, its bits to be exchanged
  int64_t filling = 0;           ///< bytes that follow each line of the kernel in a row

  int64_t row_bytes() const { return lines() * line(); }
  int64_t lines() const { return loop.kernel[0] * loop.kernel[1]; }
  int64_t line() const { return loop.kernel[2] * count + filling; }
  /// Whether each row is a position of the image, read in place.
  bool lies_ready() const;
  /// Writes rows [kernel…, count] for places begin … end - 1 of the result, `stride` apart. Padding, and what fills
  /// lines up, is `zero`.
  void gather(const uint8_t* image, int64_t begin, int64_t end, uint8_t zero, uint8_t* rows, int64_t stride) const;
  /// Writes the addresses of these windows instead, if `flip` is 0: at[tap · step + place - begin] is `count` bytes, of
  /// the image or, beyond it, `zeros`.
  void point(const uint8_t* image, int64_t begin, int64_t end, const uint8_t* zeros, const uint8_t** at,
             int64_t step) const;
  /// The same of whole lines, if each lies in the image as it is (lies_in_lines()): at[line · step + place - begin].
  /// Windows that reach beyond the image are gathered into `rows`, `stride` apart; what follows a line in the image is
  /// what fills it up.
  void point_lines(const uint8_t* image, int64_t begin, int64_t end, uint8_t zero, uint8_t* rows, int64_t stride,
                   const uint8_t** at, int64_t step) const;
  bool lies_in_lines() const { return count == channels && loop.dilation[2] == 1 && flip == 0; }

 private:
  /// Where line [k0, k1] of the kernel begins in a window inside the image.
  const uint8_t* line_at(const uint8_t* image, const WindowRange& r0, const WindowRange& r1, int64_t column, int64_t k0,
                         int64_t k1) const;
  /// Calls visit(ranges along the first two dimensions, position along the third, whether all of the window is inside).
  template <typename Visit>
  void for_places(int64_t begin, int64_t end, const Visit& visit) const;
  /// A row of a window of which pieces may be beyond the image, or not lie together.
  void gather_pieces(const uint8_t* image, const WindowRange& r0, const WindowRange& r1, const WindowRange& r2,
                     uint8_t zero, uint8_t* row) const;
};

}  // namespace tessera::kernels
