#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "tessera/mesh/sharding.h"

/// Shardings by chance, for tests of everything that must hold for all of them.
namespace tessera {

inline bool chance(std::mt19937_64& engine, int of_ten) {
  return std::uniform_int_distribution(0, 9)(engine) < of_ten;
}

inline size_t any_of(size_t count, std::mt19937_64& engine) {
  return std::uniform_int_distribution<size_t>(0, count - 1)(engine);
}

/// The n2 of every n = n1·n2 with both above 1. For a symbolic extent, those that divide it whatever its
/// symbols are.
inline std::vector<int64_t> minor_factors(const Expr& extent) {
  constexpr int64_t kLargest = 32;
  std::vector<int64_t> factors;
  for (int64_t factor = 2; factor <= kLargest; ++factor) {
    auto major = Expr::exact_divide(extent, factor);
    if (major && !major->is(1) && !major->is(0)) factors.push_back(factor);
  }
  return factors;
}

/// An axis whole, or as two sub-axes where its size is composite.
inline std::vector<AxisRef> random_pieces(const MeshAxis& axis, std::mt19937_64& engine) {
  for (int64_t major = 2; major < axis.size; ++major)
    if (axis.size % major == 0 && chance(engine, 3))
      return {{axis.name, 1, major}, {axis.name, major, axis.size / major}};
  return {AxisRef::whole(axis)};
}

/// Any sharding: some axes on any dimensions, parts and in any order; some dimensions open.
inline Sharding random_sharding(const Shape& shape, const Mesh& mesh, std::mt19937_64& engine) {
  Sharding sharding = Sharding::replicated(shape);
  if (shape.empty()) return sharding;
  for (DimSharding& dim : sharding.dims) {
    dim.open = chance(engine, 3);
    auto minors = minor_factors(dim.parts[0].size);
    if (minors.empty() || !chance(engine, 4)) continue;
    int64_t minor = minors[any_of(minors.size(), engine)];
    dim.parts = {Part{*Expr::exact_divide(dim.parts[0].size, minor), {}}, Part{minor, {}}};
  }
  std::vector<AxisRef> axes;
  for (const MeshAxis& axis : mesh.axes())
    for (const AxisRef& piece : random_pieces(axis, engine))
      if (chance(engine, 7)) axes.push_back(piece);
  std::shuffle(axes.begin(), axes.end(), engine);
  for (const AxisRef& axis : axes) {
    DimSharding& dim = sharding.dims[any_of(shape.size(), engine)];
    dim.parts[any_of(dim.parts.size(), engine)].axes.push_back(axis);
  }
  return sharding;
}

}  // namespace tessera
