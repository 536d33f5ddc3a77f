#pragma once

#include "tessera/ir/expr.h"
#include "tessera/mesh/mesh.h"

namespace tessera {

/// The same expression with every axis index @a written as mod(@a, size of a). The value on each rank stays the same,
/// but bounds, and so simplifications, take the range of the index into account: on tp=4, floordiv(4*@dp + @tp, 4) is
/// @dp. Two expressions that agree on all ranks of a mesh are always_equal in this form.
Expr with_axis_bounds(const Expr& expr, const Mesh& mesh);

/// The inverse: mod(@a, size of a) becomes @a.
Expr without_axis_bounds(const Expr& expr, const Mesh& mesh);

}  // namespace tessera
