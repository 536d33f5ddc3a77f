#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/ir/expr.h"
#include "tessera/mesh/mesh.h"

namespace tessera {

/// The same expression with every axis index @a written as mod(@a, size of a). On all ranks it has the same value, but
/// its bounds, and with them simplifications, know how large the index can be: of @tp on tp=4 that
/// floordiv(4*@dp + @tp, 4) is @dp. Two expressions that agree on all ranks of a mesh are always_equal in this form.
Expr with_axis_bounds(const Expr& expr, const Mesh& mesh);

/// The axes of the mesh whose indices the expressions mention, ascending.
std::vector<size_t> mentioned_axes(const std::vector<Expr>& expressions, const Mesh& mesh);

/// The coordinates of every rank that is at 0 along all other axes than these; row-major over these. Nullopt if they
/// are more than `most`.
std::optional<std::vector<std::vector<int64_t>>> settings_of(const std::vector<size_t>& axes, const Mesh& mesh,
                                                             size_t most);

/// How many ranks are looked at one by one to see what an expression is on all of them.
inline constexpr size_t kMostSettings = 64;

/// The expression without the indices that it mentions and does not depend on: @x - @x*min(1, @y + 1) is 0. The same if
/// the ranks that differ in those it mentions are more than kMostSettings.
Expr without_idle_axes(const Expr& expr, const Mesh& mesh);

/// What the expression is on these ranks, if that is the same on all; else the expression. The same likewise.
Expr where_alike(const Expr& expr, const Mesh& mesh, const std::vector<int>& ranks);

/// The inverse: mod(@a, size of a) becomes @a.
Expr without_axis_bounds(const Expr& expr, const Mesh& mesh);

}  // namespace tessera
