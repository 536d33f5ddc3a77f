#pragma once

#include <vector>

#include "tessera/mesh/sharding.h"

namespace tessera::property {

/// The ways to split a dimension over an axis: whole, and for every n = n1·n2 the axis on n1 or on n2. For a symbolic
/// extent, only factors that divide it for every value of the symbols. At most `factorings` pairs (n1, n2).
std::vector<DimSharding> splits_of(const Expr& extent, const AxisRef& axis, size_t factorings);

/// Every sharding of a tensor that splits one dimension over the axis; all dimensions are closed.
std::vector<Sharding> single_shardings(const Shape& shape, const AxisRef& axis, size_t factorings);

/// The 1-D meshes x=2 … x=5; x=1, too, where tests try everything.
std::vector<Mesh> lines();
/// 2-D meshes of up to 12 ranks, even and uneven.
const std::vector<Mesh>& grids();

}  // namespace tessera::property
