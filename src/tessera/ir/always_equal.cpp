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
  // Each symbol takes all of these sizes, in an order that depends on nothing but its name.
  constexpr std::array<int64_t, 12> kSizes = {1, 2, 3, 4, 5, 7, 8, 16, 30, 97, 1000, 4099};
  constexpr std::array<uint64_t, 4> kStrides = {1, 5, 7, 11};
  Hash hash;
  for (uint64_t sample = 0; sample < kSizes.size(); ++sample) {
    std::map<std::string, int64_t, std::less<>> bound;
    for (const std::string& symbol : symbols) {
      Hash name;
      name.add(symbol);
      bound[symbol] = kSizes[(name.value() / 4 % kSizes.size() + sample * kStrides[name.value() % 4]) % kSizes.size()];
    }
    hash.add(static_cast<uint64_t>(expr.evaluate(bound)));
  }
  return hash.value();
}

}  // namespace tessera
