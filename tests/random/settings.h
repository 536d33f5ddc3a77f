#pragma once

#include <cstdint>
#include <cstdlib>

/// The environment's settings for the random tests.
namespace tessera::random {

inline constexpr uint64_t kFirstSeed = 1;

/// The number that an environment variable holds; `otherwise` where it is not set.
inline uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* given = std::getenv(variable);
  return given ? std::strtoull(given, nullptr, 10) : otherwise;
}

}  // namespace tessera::random
