#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

/// How partial values combine. `mean` is a collective's convenience (sum, then a division by the number of members); a
/// partial value is never a mean.
enum class Reduction : uint8_t { sum, max, min, mean };

constexpr std::string_view name_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return "sum";
    case Reduction::max:
      return "max";
    case Reduction::min:
      return "min";
    case Reduction::mean:
      return "mean";
  }
  return "sum";
}

}  // namespace tessera
