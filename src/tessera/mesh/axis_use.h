#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/ir/expr.h"
#include "tessera/mesh/mesh.h"

/// The axis indices that expressions depend on. If these cannot be derived, expressions are evaluated on up to
/// kMostSettings ranks that differ in the mentioned indices.
namespace tessera {

inline constexpr size_t kMostSettings = 64;

/// The axes of the mesh whose indices the expressions mention, ascending.
std::vector<size_t> mentioned_axes(const std::vector<Expr>& expressions, const Mesh& mesh);

/// The coordinates of every rank that is at 0 along all other axes, row-major over `axes`. Nullopt if there are more
/// than `most`.
std::optional<std::vector<std::vector<int64_t>>> settings_of(const std::vector<size_t>& axes, const Mesh& mesh,
                                                             size_t most);

/// The expression without the indices that it mentions but does not depend on: @x - @x*min(1, @y + 1) is 0. If only
/// `ranks` use the expression and it has one value on all of them, that value: on ranks 0 and 2 of dp=2,tp=2, @tp is 0.
/// Unchanged if too many ranks would have to be evaluated.
Expr without_idle_axes(const Expr& expr, const Mesh& mesh, const std::vector<int>& ranks = {});

}  // namespace tessera
