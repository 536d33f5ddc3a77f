#pragma once

#include <vector>

#include "tessera/stages/roles.h"

namespace tessera::stages {

/// Scalars that are computed from parts of all parameters' gradients: their norm, and what is computed on the way.
///
///     q = ReduceSumSquare(g0)  r = ReduceSumSquare(g1)  s = q + r    n = Sqrt(s)    f = 1 / n
///     part                     part                     part, total  after total    after total
struct Totals {
  enum class Kind {
    none,
    leaf,   ///< the part of one gradient
    part,   ///< computed from parts of some gradients
    total,  ///< the first that is computed from all parts
    after,  ///< a scalar that is computed from a total
  };
  std::vector<Kind> of;  ///< by node

  bool is_sum(int node) const { return kind(node) == Kind::part || kind(node) == Kind::total; }
  bool has_all(int node) const { return kind(node) == Kind::total || kind(node) == Kind::after; }
  Kind kind(int node) const { return of[static_cast<size_t>(node)]; }
};

Totals totals_of(const Graph& graph, const OneBatch& batch, const Roles& roles, const Measure& measure);

}  // namespace tessera::stages
