#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace tessera::test {

/// Whether tests try everything that `make test` takes samples of: TESSERA_SAMPLE=all, as `make test-all` sets it.
inline bool tries_all() {
  const char* given = std::getenv("TESSERA_SAMPLE");
  if (!given) return false;
  if (std::string_view(given) == "all") return true;
  std::fprintf(stderr, "TESSERA_SAMPLE=%s is invalid; set it to all, or unset it for a sample\n", given);
  std::abort();
}

/// How many of something a test tries.
template <typename T>
T sample(T some, T all) {
  return tries_all() ? all : some;
}

/// One in `n` of them and at least one, from the one at `turn` modulo n on, so that tests that take turns try each; or
/// all.
template <typename T>
std::vector<T> one_in(size_t n, const std::vector<T>& all, size_t turn) {
  if (tries_all() || all.empty()) return all;
  std::vector<T> some;
  for (size_t at = turn % std::min(n, all.size()); at < all.size(); at += n) some.push_back(all[at]);
  return some;
}

}  // namespace tessera::test
