#pragma once

#include "tessera/kernels/cpu/windows.h"

namespace tessera::kernels {

/// Reads the windows of a convolution out of an image of bytes whose channels come last, as rows of a matrix.
struct WindowRows {
  SpatialLoop loop;
  int64_t channels = 0;          ///< of the image
  int64_t first = 0, count = 0;  ///< the channels that are read
  uint8_t flip = 0;              ///< of each byte, its bits to be exchanged

  int64_t row_bytes() const { return loop.kernel_count() * count; }
  /// Whether each row is a place of the image as it lies.
  bool lies_ready() const;
  /// Writes rows [kernel…, count] for places begin … end - 1 of the result, `stride` apart. Padding is `zero`.
  void gather(const uint8_t* image, int64_t begin, int64_t end, uint8_t zero, uint8_t* rows, int64_t stride) const;
  /// Says where these windows lie, instead, if `flip` is 0: at[tap · step + place - begin] is `count` bytes, of the
  /// image or, beyond it, `zeros`.
  void point(const uint8_t* image, int64_t begin, int64_t end, const uint8_t* zeros, const uint8_t** at,
             int64_t step) const;

 private:
  /// Calls visit(ranges along the first two dimensions, position along the third, whether all of the window is inside).
  template <typename Visit>
  void for_places(int64_t begin, int64_t end, const Visit& visit) const;
  /// A row of a window of which pieces may be beyond the image, or not lie together.
  void gather_pieces(const uint8_t* image, const WindowRange& r0, const WindowRange& r1, const WindowRange& r2,
                     uint8_t zero, uint8_t* row) const;
};

}  // namespace tessera::kernels
