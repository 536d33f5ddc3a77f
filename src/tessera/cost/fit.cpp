#include "tessera/cost/fit.h"

#include <array>
#include <cmath>
#include <vector>

namespace tessera::cost {
namespace {

double mean_square(std::span<const Terms> rows, double alpha, double beta) {
  double sum = 0;
  for (const Terms& row : rows) sum += std::pow(row.messages * alpha + row.bytes * beta - 1, 2);
  return sum / static_cast<double>(rows.size());
}

}  // namespace

Fit fit(std::span<const Timed> measurements) {
  // Divided by its seconds, a measurement becomes messages·α + bytes·β = 1.
  std::vector<Terms> rows;
  double aa = 0, ab = 0, bb = 0, a = 0, b = 0;  // the normal equations: aa·α + ab·β = a, ab·α + bb·β = b
  for (const Timed& timed : measurements) {
    if (timed.seconds <= 0) continue;
    const Terms row{timed.terms.messages / timed.seconds, timed.terms.bytes / timed.seconds};
    rows.push_back(row);
    aa += row.messages * row.messages;
    ab += row.messages * row.bytes;
    bb += row.bytes * row.bytes;
    a += row.messages;
    b += row.bytes;
  }
  if (rows.empty()) return {};
  // The minimum without negative numbers is the equations' solution, or has one of the two at zero.
  std::vector<std::array<double, 2>> candidates = {{0, 0}};
  if (aa > 0) candidates.push_back({a / aa, 0});
  if (bb > 0) candidates.push_back({0, b / bb});
  const double determinant = aa * bb - ab * ab;
  if (determinant > 1e-12 * aa * bb)
    candidates.push_back({(a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant});
  Fit best{0, 0, mean_square(rows, 0, 0)};
  for (const auto& [alpha, beta] : candidates) {
    if (alpha < 0 || beta < 0) continue;
    const double error = mean_square(rows, alpha, beta);
    if (error < best.error) best = {alpha, beta, error};
  }
  best.error = std::sqrt(best.error);
  return best;
}

Fit fit(int64_t members, std::span<const TimedCollective> measurements) {
  // Forms depend on the fit and the fit on forms: begin with rings, and repeat until nothing improves.
  constexpr int kMostRounds = 20;
  std::vector<Timed> timed;
  for (const TimedCollective& entry : measurements)
    timed.push_back({ring(entry.kind, members, entry.bytes), entry.seconds});
  Fit best = fit(timed);
  for (int round = 0; round < kMostRounds; ++round) {
    auto time = [&](const Terms& terms) { return terms.messages * best.alpha + terms.bytes * best.beta; };
    for (size_t i = 0; i < timed.size(); ++i) {
      const TimedCollective& entry = measurements[i];
      const Terms by_ring = ring(entry.kind, members, entry.bytes), by_tree = tree(entry.kind, members, entry.bytes);
      timed[i].terms = time(by_tree) < time(by_ring) ? by_tree : by_ring;
    }
    const Fit next = fit(timed);
    if (next.alpha == best.alpha && next.beta == best.beta) break;
    best = next;
  }
  return best;
}

}  // namespace tessera::cost
