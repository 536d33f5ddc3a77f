#pragma once

#include <fmt/format.h>

#include <string>

namespace tessera {

/// "12.5 µs", "1.25 ms", "1.2e+03 ms": a predicted time, for messages.
inline std::string rounded_time(double seconds) {
  return seconds < 1e-4 ? fmt::format("{:.3g} µs", seconds * 1e6) : fmt::format("{:.3g} ms", seconds * 1e3);
}

}  // namespace tessera
