#include "tessera/ir/random.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "tessera/base/philox.h"
#include "tessera/ir/hash.h"

namespace tessera::random {
namespace {

constexpr std::array<uint32_t, 2> halves(uint64_t word) {
  return {static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32)};
}

// ln x for x in (0, 1]: x = m · 2ᵉ with m in [√½, √2), ln m = 2 artanh((m - 1) / (m + 1)).
double logarithm(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < 0x1.6a09e667f3bcdp-1) {
    m *= 2;
    --exponent;
  }
  const double s = (m - 1) / (m + 1), square = s * s;
  double sum = 0;
  for (int k = 25; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
  return exponent * 0x1.62e42fefa39efp-1 + 2 * s * sum;
}

// The Taylor polynomials of cos and sin on [-π/4, π/4].
double cosine_near_zero(double x) {
  const double square = x * x;
  double sum = 0;
  for (int k = 16; k >= 2; k -= 2) sum = (1 - sum) * square / (k * (k - 1));
  return 1 - sum;
}

double sine_near_zero(double x) {
  const double square = x * x;
  double sum = 0;
  for (int k = 17; k >= 3; k -= 2) sum = (1 - sum) * square / (k * (k - 1));
  return x * (1 - sum);
}

// cos 2πt for t in [0, 1): the nearest quarter of a turn, and the rest, which is exact.
double cosine_of_turns(double t) {
  const int quarter = static_cast<int>(4 * t + 0.5);
  const double rest = (t - quarter * 0.25) * 0x1.921fb54442d18p+2;
  switch (quarter % 4) {
    case 0:
      return cosine_near_zero(rest);
    case 1:
      return -sine_near_zero(rest);
    case 2:
      return -cosine_near_zero(rest);
    default:
      return sine_near_zero(rest);
  }
}

}  // namespace

int64_t key_of_name(std::string_view name) {
  Hash hash;
  hash.add(name);
  return static_cast<int64_t>(hash.value());
}

int64_t key_of_seed(float seed) {
  return seeded(0, std::bit_cast<int32_t>(seed));
}

int64_t seeded(uint64_t seed, int64_t of) {
  const auto [low, high] = halves(static_cast<uint64_t>(of));
  const auto words = philox4x32({low, high, 0, 0}, halves(seed));
  return static_cast<int64_t>(uint64_t{words[1]} << 32 | words[0]);
}

void Stream::words(uint64_t first, int64_t count, uint32_t* out) const {
  const auto [run_low, run_high] = halves(run);
  const auto own_key = halves(key);
  const auto block_at = [&, run_low = run_low, run_high = run_high](uint64_t block) {
    const auto [low, high] = halves(block);
    return philox4x32({low, high, run_low, run_high}, own_key);
  };
  for (; count > 0 && first % 4 != 0; ++first, --count) *out++ = block_at(first / 4)[first % 4];
  for (; count >= 4; first += 4, count -= 4, out += 4) {
    const auto block = block_at(first / 4);
    std::copy(block.begin(), block.end(), out);
  }
  if (count <= 0) return;
  const auto block = block_at(first / 4);
  std::copy(block.begin(), block.begin() + count, out);
}

double normal(double length, double angle) {
  return std::sqrt(-2 * logarithm(length)) * cosine_of_turns(angle);
}

}  // namespace tessera::random
