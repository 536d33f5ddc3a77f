#pragma once

#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {
inline namespace v1 {

/// The numbers that a setting accepts: an interval whose ends may be excluded. NaN, and numbers that are infinite in
/// float32, are never accepted, since most settings are used in float32.
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
  std::optional<double> parse(std::string_view text) const;
  /// "a number above 0", "a number from 0 to below 1".
  std::string text() const;
};

}  // namespace v1
}  // namespace tessera
