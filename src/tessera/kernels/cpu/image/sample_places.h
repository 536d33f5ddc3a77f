#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "tessera/kernels/cpu/library/dispatch.h"

/// What operators share that read images between their pixels.
namespace tessera::kernels {

/// The larger of two numbers, or NaN if one of them is.
template <typename Sum>
Sum larger(Sum a, Sum b) {
  return b > a || std::isnan(b) ? b : a;
}

/// The pixels around some places of an image, and their weights, which all channels share. Its arrays lie on the stack
/// and fit the first-level cache.
template <typename Sum>
class SamplePlaces {
 public:
  static constexpr int64_t kMost = 64;          ///< places
  static constexpr int64_t kMostPixels = 1024;  ///< of all places together: 16 for each of 64

  void clear() {
    count_ = 0;
    pixel_count_ = 0;
    zeros_.fill(false);
  }
  bool is_full() const { return pixel_count_ == kMostPixels; }
  /// Adds a pixel to the next place.
  void add(int64_t pixel, double weight) {
    pixels_[pixel_count_] = pixel;
    weights_[pixel_count_++] = static_cast<Sum>(weight);
  }
  /// The next place has a sample without pixels, which is 0.
  void add_zero() { zeros_[static_cast<size_t>(count_)] = true; }
  void end_place() { ends_[static_cast<size_t>(count_++)] = pixel_count_; }

  /// What the places have in one channel: the sum of their pixels, each times its weight.
  template <typename T, typename Write>
  void sample(const T* plane, Write&& write) const {
    size_t k = 0;
    for (int64_t p = 0; p < count_; ++p) {
      Sum sum = 0;
      for (const size_t end = ends_[static_cast<size_t>(p)]; k < end; ++k) sum += weights_[k] * load(plane[pixels_[k]]);
      write(p, sum);
    }
  }

  /// The largest of these products instead, and of 0 if a sample has no pixels; 0 for a place without samples.
  template <typename T, typename Write>
  void largest(const T* plane, Write&& write) const {
    size_t k = 0;
    for (int64_t p = 0; p < count_; ++p) {
      const size_t end = ends_[static_cast<size_t>(p)];
      Sum most = k < end && !zeros_[static_cast<size_t>(p)] ? -std::numeric_limits<Sum>::infinity() : Sum(0);
      for (; k < end; ++k) most = larger(most, weights_[k] * load(plane[pixels_[k]]));
      write(p, most);
    }
  }

 private:
  int64_t count_ = 0;
  size_t pixel_count_ = 0;
  std::array<size_t, kMost> ends_{};
  std::array<bool, kMost> zeros_{};
  std::array<int64_t, kMostPixels> pixels_;
  std::array<Sum, kMostPixels> weights_;
};

}  // namespace tessera::kernels
