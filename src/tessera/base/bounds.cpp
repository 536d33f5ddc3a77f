#include "tessera/bounds.h"

#include <fmt/format.h>

#include <charconv>

namespace tessera {
inline namespace v1 {

std::optional<double> Bounds::parse(std::string_view text) const {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  return is_number && hold(number) ? std::optional(number) : std::nullopt;
}

std::string Bounds::text() const {
  const bool starts = least > -kLargest, ends = most < kLargest;
  if (!starts && !ends) return "a finite number";
  if (!ends)
    return above_least ? fmt::format("a number above {}", least) : fmt::format("a number of at least {}", least);
  const std::string end = fmt::format("{}{}", below_most ? "below " : "", most);
  if (!starts) return below_most ? "a number " + end : "a number of at most " + end;
  return fmt::format("a number {} {} {} {}", above_least ? "above" : "from", least, above_least ? "and" : "to",
                     above_least && !below_most ? "at most " + end : end);
}

}  // namespace v1
}  // namespace tessera
