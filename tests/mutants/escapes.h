#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera::mutants {

/// Mutators of which `tessera check` takes some mutants for right that are not, or refuses some that are, and what is
/// missing for each. A mutator that no longer does is to be taken off: the test fails until it is.
struct Escape {
  std::string_view mutator;
  std::string_view missing;
  uint64_t seed;  ///< of one that escapes, if nothing else has changed since
};
const std::vector<Escape>& known_escapes();

}  // namespace tessera::mutants
