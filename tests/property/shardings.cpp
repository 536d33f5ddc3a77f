#include "property/shardings.h"

#include "mesh/random_sharding.h"
#include "sample.h"

namespace tessera::property {
std::vector<DimSharding> splits_of(const Expr& extent, const AxisRef& axis, size_t factorings) {
  std::vector<DimSharding> splits{{{Part{extent, {axis}}}}};
  std::vector<int64_t> minors = minor_factors(extent);
  // Both ends of the list: a minor part that is smaller, and one that is larger, than most axes.
  while (minors.size() > factorings) minors.erase(minors.begin() + static_cast<long>(minors.size() / 2));
  for (int64_t minor : minors) {
    Expr major = *Expr::exact_divide(extent, minor);
    splits.push_back({{Part{major, {axis}}, Part{minor, {}}}});
    splits.push_back({{Part{major, {}}, Part{minor, {axis}}}});
  }
  return splits;
}

std::vector<Sharding> single_shardings(const Shape& shape, const AxisRef& axis, size_t factorings) {
  std::vector<Sharding> shardings;
  for (size_t d = 0; d < shape.size(); ++d)
    for (DimSharding& split : splits_of(shape[d], axis, factorings)) {
      shardings.push_back(Sharding::replicated(shape));
      shardings.back().dims[d] = std::move(split);
    }
  return shardings;
}

std::vector<Mesh> lines() {
  std::vector<Mesh> meshes;
  for (int64_t size = test::sample(2, 1); size <= 5; ++size) meshes.push_back(Mesh({{"x", size}}));
  return meshes;
}

const std::vector<Mesh>& grids() {
  static const std::vector<Mesh> meshes = [] {
    std::vector<Mesh> all;
    for (int64_t a = 1; a <= 6; ++a)
      for (int64_t b = 2; b <= 6; ++b)
        if (a * b >= 4 && a * b <= 12) all.push_back(Mesh({{"x", a}, {"y", b}}));
    return all;
  }();
  return meshes;
}

}  // namespace tessera::property
