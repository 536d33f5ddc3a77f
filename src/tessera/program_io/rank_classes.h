#pragma once

#include <string>
#include <vector>

#include "tessera/mesh/sharding.h"
#include "tessera/spmd/program.h"

namespace tessera::program_io {

/// A partition of a mesh's ranks into classes; classes are numbered by their first ranks.
struct RankClasses {
  std::vector<int> of_rank;
  std::vector<int> first_rank;  ///< by class

  size_t count() const { return first_rank.size(); }
};

/// Ranks are in one class if every expression, with axis indices bound, is the same on them. The cost is one
/// substitution for each expression and setting of the axes that it uses, not for each rank.
RankClasses classes_by(const Mesh& mesh, const std::vector<Expr>& expressions);

/// Axes whose index a written model reads at run time, from an AxisIndex node: those that occur only together with
/// symbols, as in the extent floordiv(batch - @dp + 1, 2). Binding such an axis would make one model per index although
/// the extent stays symbolic.
std::vector<std::string> unbound_axes(const spmd::Program& program);

/// Ranks of one class run the same model: all extents and shape operands agree once the other axes are bound, and the
/// ranks have the same index along every axis along which a value is placed.
RankClasses model_classes(const spmd::Program& program, const std::vector<std::string>& unbound);

/// Ranks of one class hold the same shards of all states.
RankClasses shard_classes(const spmd::Program& program);

}  // namespace tessera::program_io
