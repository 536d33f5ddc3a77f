#include "tessera/ir/always_equal.h"

#include <array>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/ir/hash.h"

namespace tessera {

namespace {

// Small sizes, and sizes beyond common limits of models: windows, positions, vocabularies.
constexpr std::array<int64_t, 17> kSizes = {0, 1, 2, 3, 4, 5, 7, 8, 16, 30, 97, 130, 1000, 4099, 20011, 65537, 1048583};

using Sizes = std::map<std::string, int64_t, std::less<>>;

// Each symbol takes a different size in each sample, and all sizes once: in the list of sizes, it is `apart` places
// after the size of the symbol before it.
Sizes sizes_in(size_t sample, const std::set<std::string>& symbols, size_t apart = 5) {
  Sizes sizes;
  for (const std::string& symbol : symbols) sizes[symbol] = kSizes[(sample + apart * sizes.size()) % kSizes.size()];
  return sizes;
}

// Nullopt if the expression has no value: it overflows, or divides by zero.
std::optional<int64_t> value_at(const Expr& expr, const Sizes& sizes) {
  try {
    return expr.evaluate(sizes);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

bool always_equal(const Expr& a, const Expr& b) {
  if (a == b) return true;
  std::set<std::string> symbols;
  a.collect_symbols(symbols);
  b.collect_symbols(symbols);
  if (symbols.empty()) return false;
  for (size_t sample = 0; sample < kSizes.size(); ++sample) {
    const Sizes sizes = sizes_in(sample, symbols);
    const auto left = value_at(a, sizes), right = value_at(b, sizes);
    if (left && right && *left != *right) return false;
  }
  return true;
}

bool equal_as_extents(const Expr& a, const Expr& b) {
  if (always_equal(a, b)) return true;
  std::set<std::string> symbols;
  a.collect_symbols(symbols);
  b.collect_symbols(symbols);
  bool any = false;
  for (size_t apart = 0; apart < (symbols.size() > 1 ? kSizes.size() : 1); ++apart)
    for (size_t sample = 0; sample < kSizes.size(); ++sample) {
      const Sizes sizes = sizes_in(sample, symbols, apart);
      const auto left = value_at(a, sizes), right = value_at(b, sizes);
      if (!left || !right || *left < 0 || *right < 0) continue;
      if (*left != *right) return false;
      any |= *left > 0;
    }
  return any;
}

bool never_negative(const Expr& expr) {
  if (const auto bound = expr.lower_bound(); bound && *bound >= 0) return true;
  std::set<std::string> symbols;
  expr.collect_symbols(symbols);
  for (size_t sample = 0; sample < kSizes.size(); ++sample)
    if (value_at(expr, sizes_in(sample, symbols)).value_or(0) < 0) return false;
  return true;
}

uint64_t fingerprint(const Expr& expr) {
  std::set<std::string> symbols;
  expr.collect_symbols(symbols);
  Hash hash;
  for (size_t sample = 0; sample < 2 * kSizes.size(); ++sample) {
    Sizes bound;
    for (const std::string& symbol : symbols) {
      // Each symbol takes all sizes, twice, in an order that depends only on its name.
      Hash name;
      name.add(symbol);
      const uint64_t stride = 1 + name.value() / 64 % (kSizes.size() - 1);
      const uint64_t first = name.value() % kSizes.size() + sample / kSizes.size() * 3;
      bound[symbol] = kSizes[(first + sample * stride) % kSizes.size()];
    }
    const std::optional<int64_t> value = value_at(expr, bound);
    hash.add(static_cast<uint64_t>(value.has_value()));
    hash.add(static_cast<uint64_t>(value.value_or(0)));
  }
  return hash.value();
}

}  // namespace tessera
