#include "tessera/stages/repeats.h"

#include <algorithm>
#include <numeric>

namespace tessera::stages {
namespace {

struct Priced {
  Run run;
  double price = 0;  // of a division before, between or behind copies, on average
};

// The copies of a period in the elements [begin, end), which all repeat with it, from the cheapest place.
Priced cheapest(size_t begin, size_t end, size_t period, size_t elements, const std::function<double(size_t)>& price) {
  constexpr double kSame = 1 + 1e-9;
  Priced best;
  for (size_t start = begin; start < begin + period && start + 2 * period <= end; ++start) {
    const Run run{start, period, (end - start) / period};
    double sum = 0, divisions = 0;
    for (size_t copy = 0; copy <= run.count; ++copy) {
      const size_t before = start + copy * period;
      if (before == 0 || before == elements) continue;
      sum += price(before - 1);
      ++divisions;
    }
    const double mean = sum / divisions;
    const bool better =
        best.run.count == 0 || mean * kSame < best.price || (mean <= best.price * kSame && run.count >= best.run.count);
    if (better) best = {run, mean};
  }
  return best;
}

// Where elements repeat with a period, as far as they do.
struct Stretch {
  size_t begin = 0, end = 0, period = 0;
  double weight = 0;  // of whole copies
};

Stretch heaviest_stretch(const std::vector<int>& elements, const std::vector<double>& before, size_t begin, size_t end,
                         size_t period) {
  Stretch heaviest;
  for (size_t first = begin; first + 2 * period <= end;) {
    size_t same = first;
    while (same + period < end && elements[same] == elements[same + period]) ++same;
    const size_t copies = (same - first) / period + 1;
    const double weight = before[first + copies * period] - before[first];
    if (copies >= 2 && weight > heaviest.weight) heaviest = {first, same + period, period, weight};
    first = same + 1;
  }
  return heaviest;
}

}  // namespace

std::optional<Run> heaviest_run(const std::vector<int>& elements, const std::vector<double>& weights, size_t begin,
                                size_t end, const std::function<double(size_t)>& price) {
  std::vector<double> before(elements.size() + 1);
  std::partial_sum(weights.begin(), weights.end(), before.begin() + 1);
  std::vector<Stretch> stretches;
  double most = 0;
  for (size_t period = 1; 2 * period <= end - begin; ++period) {
    stretches.push_back(heaviest_stretch(elements, before, begin, end, period));
    most = std::max(most, stretches.back().weight);
  }
  if (most <= 0) return std::nullopt;
  constexpr double kAsMuch = 0.95, kCheaper = 0.75;
  std::optional<Priced> best;
  for (const Stretch& stretch : stretches) {
    if (stretch.weight < kAsMuch * most) continue;
    const Priced priced = cheapest(stretch.begin, stretch.end, stretch.period, elements.size(), price);
    if (!best || priced.price < kCheaper * best->price) best = priced;
  }
  return best->run;
}

}  // namespace tessera::stages
