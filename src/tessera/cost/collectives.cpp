#include "tessera/cost/collectives.h"

#include <algorithm>
#include <bit>

namespace tessera::cost {
namespace {

using Kind = Collective;

double log2_up(int64_t members) {
  return std::bit_width(static_cast<uint64_t>(members - 1));
}

Terms operator+(const Terms& a, const Terms& b) {
  return {a.messages + b.messages, a.bytes + b.bytes};
}

}  // namespace

Terms ring(Kind kind, int64_t members, double bytes) {
  const auto others = static_cast<double>(members - 1);
  if (members <= 1) return {};
  // Every member's share passes all other members.
  const Terms shares{others, bytes * others / static_cast<double>(members)};
  const CollectiveTraits& traits = traits_of(kind);
  if (traits.passes == 1) return shares;
  if (traits.passes == 2) return shares + shares;  // reduce-scatter, then all-gather
  // Scatter by a tree, then all-gather (van de Geijn); reduce-scatter, then gather by a tree (Rabenseifner).
  if (traits.root != RootRole::none) return Terms{log2_up(members), shares.bytes} + shares;
  return kind == Kind::barrier ? Terms{others, 0} : Terms{1, bytes};
}

Terms tree(Kind kind, int64_t members, double bytes) {
  if (members <= 1) return {};
  const double rounds = log2_up(members);
  switch (kind) {
    case Kind::all_reduce:  // recursive doubling
    case Kind::broadcast:   // binomial tree
    case Kind::reduce:
      return {rounds, rounds * bytes};
    case Kind::all_gather:  // Bruck's algorithm
    case Kind::gather:      // binomial trees
    case Kind::scatter:
    case Kind::reduce_scatter:  // recursive halving
      return {rounds, ring(kind, members, bytes).bytes};
    case Kind::all_to_all:  // Bruck's algorithm: half of the bytes in every round
      return {rounds, rounds * bytes / 2};
    case Kind::barrier:  // dissemination
      return {rounds, 0};
    case Kind::permute:
    case Kind::send:
    case Kind::recv:
      return ring(kind, members, bytes);
  }
  return {};
}

double time_on(Kind kind, const Level& level, double bytes) {
  auto time = [&](const Terms& terms) { return terms.messages * level.alpha + terms.bytes * level.beta; };
  return std::min(time(ring(kind, level.size, bytes)), time(tree(kind, level.size, bytes)));
}

double flat_time(Kind kind, std::span<const Level> levels, double bytes) {
  Level slowest;
  for (const Level& level : levels) {
    slowest.size *= level.size;
    slowest.alpha = std::max(slowest.alpha, level.alpha);
    slowest.beta = std::max(slowest.beta, level.beta);
  }
  return time_on(kind, slowest, bytes);
}

double hierarchical_time(Kind kind, std::span<const Level> levels, double bytes) {
  if (!traits_of(kind).by_levels || levels.empty()) return flat_time(kind, levels, bytes);
  double time = time_on(kind, levels.back(), bytes);
  for (const Level& level : levels.first(levels.size() - 1)) {
    if (kind == Kind::all_reduce)
      time += time_on(Kind::reduce_scatter, level, bytes) + time_on(Kind::all_gather, level, bytes);
    else
      time += time_on(kind, level, bytes);
  }
  return time;
}

double bus_factor(Kind kind, int64_t members) {
  const int passes = traits_of(kind).passes;
  return passes == 0 ? 1 : passes * static_cast<double>(members - 1) / static_cast<double>(members);
}

}  // namespace tessera::cost
