#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace tessera::data {

/// Deals the samples 0, 1, 2, … to sources in proportion to weights, evenly: after any number of samples, each of
/// f sources has had its share to within ½·⌈log₂ f⌉ samples. It is a function of the sample's index alone.
///
/// Two sources: the first gets share p, and left(i) = ⌊p·i + 1/2⌋ of the samples before i (Bresenham's line, an error
/// diffusion in closed form); sample i is the first source's if left(i + 1) > left(i). More sources are the leaves of a
/// balanced binary tree that splits its samples so at every node, which takes O(log f). Each level adds at most half a
/// sample to its share of the error above it.
///
/// Example: weights 0.7 and 0.3 deal a b a a b a a a b a, and again.
class Mixture {
 public:
  /// Weights are positive and finite; they need not sum to 1. They are rounded to 32 bits of their node's sum.
  explicit Mixture(const std::vector<double>& weights);

  struct Draw {
    size_t source = 0;
    int64_t index = 0;  ///< how many of the samples before this one are the same source's
  };
  Draw at(int64_t sample) const;

 private:
  struct Node {
    size_t first = 0, middle = 0, last = 0;  ///< sources [first, middle) are dealt by `left`, [middle, last) by `right`
    uint64_t share = 0;                      ///< of the left side, in units of 2^-32
    size_t left = 0, right = 0;              ///< nodes; of no meaning where one source is left
  };
  size_t build(const std::vector<double>& weights, size_t first, size_t last);

  std::vector<Node> nodes_;
};

}  // namespace tessera::data
