#include "tessera/base/bytes_text.h"

#include <array>
#include <charconv>

#include "tessera/base/checked.h"

namespace tessera {
inline namespace v1 {

std::string bytes_text(double bytes, int digits) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.{}f} {}", bytes, digits, kUnits[unit]);
}

std::optional<size_t> parse_bytes(std::string_view text) {
  size_t bytes = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  const std::string_view unit(end, text.data() + text.size());
  constexpr std::string_view kUnits = "KMGT";
  const size_t power = unit.size() == 1 ? kUnits.find(unit[0]) + 1 : 0;  // npos + 1 is 0
  if (error != std::errc() || bytes == 0 || (!unit.empty() && power == 0)) return std::nullopt;
  return multiply_if_fits(bytes, size_t{1} << 10 * power);
}

}  // namespace v1
}  // namespace tessera
