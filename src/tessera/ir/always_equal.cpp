#include "tessera/ir/always_equal.h"

#include <array>

#include "tessera/ir/hash.h"

namespace tessera {

bool always_equal(const Expr& a, const Expr& b) {
  if (a == b) return true;
  std::set<std::string> symbols;
  a.collect_symbols(symbols);
  b.collect_symbols(symbols);
  if (symbols.empty()) return false;
  // Each symbol another value in each sample, small ones and large ones.
  constexpr std::array<int64_t, 12> kSizes = {0, 1, 2, 3, 4, 5, 7, 8, 16, 30, 97, 1000};
  for (size_t sample = 0; sample < kSizes.size(); ++sample) {
    std::map<std::string, int64_t, std::less<>> bound;
    for (const std::string& symbol : symbols) bound[symbol] = kSizes[(sample + 5 * bound.size()) % kSizes.size()];
    if (a.evaluate(bound) != b.evaluate(bound)) return false;
  }
  return true;
}

uint64_t fingerprint(const Expr& expr) {
  std::set<std::string> symbols;
  expr.collect_symbols(symbols);
  // What a symbol is in a sample depends on nothing but its name. A size is each of these once, then by chance. An index
  // along an axis (@tp) is 0 as often as not, as most axes are short.
  constexpr std::array<int64_t, 12> kSizes = {1, 2, 3, 4, 5, 7, 8, 16, 30, 97, 1000, 4099};
  constexpr std::array<uint64_t, 4> kStrides = {1, 5, 7, 11};
  constexpr uint64_t kSamples = 40, kMostIndex = 15, kMostSize = 200;
  auto drawn = [&](const std::string& symbol, uint64_t sample) {
    Hash name;
    name.add(symbol);
    const uint64_t fixed = name.value();
    name.add(sample);
    const uint64_t chance = name.value() >> 8;
    if (symbol.starts_with('@')) return static_cast<int64_t>(chance % 2 * (1 + chance / 2 % kMostIndex));
    if (sample >= kSizes.size()) return static_cast<int64_t>(chance % kMostSize);
    return kSizes[(fixed / 4 + sample * kStrides[fixed % 4]) % kSizes.size()];
  };
  Hash hash;
  for (uint64_t sample = 0; sample < kSamples; ++sample) {
    std::map<std::string, int64_t, std::less<>> bound;
    for (const std::string& symbol : symbols) bound[symbol] = drawn(symbol, sample);
    hash.add(static_cast<uint64_t>(expr.evaluate(bound)));
  }
  return hash.value();
}

}  // namespace tessera
