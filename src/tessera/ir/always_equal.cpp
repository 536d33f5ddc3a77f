#include "tessera/ir/always_equal.h"

#include <array>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/ir/hash.h"

namespace tessera {

namespace {

// Small sizes, and such as are beyond limits that models have: windows, positions, vocabularies.
constexpr std::array<int64_t, 17> kSizes = {0, 1, 2, 3, 4, 5, 7, 8, 16, 30, 97, 130, 1000, 4099, 20011, 65537, 1048583};

// Nothing where the expression has no value: it overflows, or divides by zero.
std::optional<int64_t> value_at(const Expr& expr, const std::map<std::string, int64_t, std::less<>>& sizes) {
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
  // Each symbol another value in each sample, and all of them once.
  for (size_t sample = 0; sample < kSizes.size(); ++sample) {
    std::map<std::string, int64_t, std::less<>> bound;
    for (const std::string& symbol : symbols) bound[symbol] = kSizes[(sample + 5 * bound.size()) % kSizes.size()];
    const auto left = value_at(a, bound), right = value_at(b, bound);
    if (left && right && *left != *right) return false;
  }
  return true;
}

bool never_negative(const Expr& expr) {
  if (const auto bound = expr.lower_bound(); bound && *bound >= 0) return true;
  std::set<std::string> symbols;
  expr.collect_symbols(symbols);
  for (size_t sample = 0; sample < kSizes.size(); ++sample) {
    std::map<std::string, int64_t, std::less<>> bound;
    for (const std::string& symbol : symbols) bound[symbol] = kSizes[(sample + 5 * bound.size()) % kSizes.size()];
    if (value_at(expr, bound).value_or(0) < 0) return false;
  }
  return true;
}

uint64_t fingerprint(const Expr& expr) {
  std::set<std::string> symbols;
  expr.collect_symbols(symbols);
  Hash hash;
  for (size_t sample = 0; sample < 2 * kSizes.size(); ++sample) {
    std::map<std::string, int64_t, std::less<>> bound;
    for (const std::string& symbol : symbols) {
      // Each symbol takes all sizes, twice, in an order that depends on nothing but its name.
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
