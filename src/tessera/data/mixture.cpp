#include "tessera/data/mixture.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tessera/base/error.h"

namespace tessera::data {
namespace {

constexpr uint64_t kWhole = uint64_t{1} << 32;

// ⌊count·share + 1/2⌋ with the share in units of 2^-32; exact, since the two halves of the count are multiplied apart.
int64_t dealt(int64_t count, uint64_t share) {
  const auto samples = static_cast<uint64_t>(count);
  return static_cast<int64_t>((samples >> 32) * share + (((samples & (kWhole - 1)) * share + kWhole / 2) >> 32));
}

}  // namespace

Mixture::Mixture(const std::vector<double>& weights) {
  check(!weights.empty(), "a mixture has sources");
  for (double weight : weights) check(weight > 0 && std::isfinite(weight), "weights are positive and finite");
  build(weights, 0, weights.size());
}

size_t Mixture::build(const std::vector<double>& weights, size_t first, size_t last) {
  const size_t at = nodes_.size();
  nodes_.push_back({first, first, last});
  if (last - first == 1) return at;
  const size_t middle = first + (last - first) / 2;
  // Divided by the largest first, so that no sum overflows.
  const double largest = *std::max_element(weights.begin() + first, weights.begin() + last);
  auto sum = [&](size_t begin, size_t end) {
    double total = 0;
    for (size_t i = begin; i < end; ++i) total += weights[i] / largest;
    return total;
  };
  const double share = sum(first, middle) / sum(first, last);
  // A source whose weight is not zero comes up, however rarely.
  const auto rounded = static_cast<uint64_t>(std::llround(share * static_cast<double>(kWhole)));
  nodes_[at].share = std::clamp<uint64_t>(rounded, 1, kWhole - 1);
  nodes_[at].middle = middle;
  const size_t left = build(weights, first, middle), right = build(weights, middle, last);
  nodes_[at].left = left;
  nodes_[at].right = right;
  return at;
}

Mixture::Draw Mixture::at(int64_t sample) const {
  const Node* node = &nodes_[0];
  while (node->last - node->first > 1) {
    const int64_t before = dealt(sample, node->share);
    const bool left = dealt(sample + 1, node->share) > before;
    sample = left ? before : sample - before;
    node = &nodes_[left ? node->left : node->right];
  }
  return {node->first, sample};
}

}  // namespace tessera::data
