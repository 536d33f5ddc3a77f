#pragma once

#include <algorithm>
#include <vector>

namespace tessera {

/// The middle value; of an even number, the higher of both in the middle. `values` must not be empty.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace tessera
