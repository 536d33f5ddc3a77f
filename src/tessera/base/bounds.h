#pragma once

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

/// The numbers that an option accepts: an interval whose ends may be excluded. NaN, and numbers that are infinite in
/// float32, are never accepted, since most options are used in float32.
struct Bounds {
  static constexpr double kLargest = std::numeric_limits<float>::max();

  double least = -kLargest, most = kLargest;
  bool above_least = false, below_most = false;  ///< the end itself is excluded

  static Bounds at_least(double least) { return {least}; }
  static Bounds above(double least) { return {least, kLargest, true}; }
  static Bounds between(double least, double most) { return {least, most}; }
  static Bounds from_to_below(double least, double most) { return {least, most, false, true}; }

  bool hold(double number) const {
    return (above_least ? number > least : number >= least) && (below_most ? number < most : number <= most);
  }

  /// The text as a number; nullopt if it is not a number, or not an accepted one.
  std::optional<double> parse(std::string_view text) const {
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool is_number = error == std::errc() && end == text.data() + text.size();
    return is_number && hold(number) ? std::optional(number) : std::nullopt;
  }

  /// "a number above 0", "a number from 0 to below 1".
  std::string text() const {
    const bool starts = least > -kLargest, ends = most < kLargest;
    if (!starts && !ends) return "a finite number";
    if (!ends)
      return above_least ? fmt::format("a number above {}", least) : fmt::format("a number of at least {}", least);
    const std::string end = fmt::format("{}{}", below_most ? "below " : "", most);
    if (!starts) return below_most ? "a number " + end : "a number of at most " + end;
    return fmt::format("a number {} {} {} {}", above_least ? "above" : "from", least, above_least ? "and" : "to",
                       above_least && !below_most ? "at most " + end : end);
  }
};

}  // namespace tessera
