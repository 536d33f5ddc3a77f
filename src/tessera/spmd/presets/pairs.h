#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/spmd/presets/presets.h"

namespace tessera::spmd {

/// A node that `megatron` splits, a matmul, a convolution or a lookup, with the dimension of its weight that it splits.
struct SplitWeight {
  const NodeLayout* node = nullptr;
  int dim = 0;
  size_t operand = 1;  ///< the weight; 0 for lookups
};

/// What megatron parallelism finds in a graph.
struct MegatronPlan {
  std::vector<SplitWeight> columns;             ///< results are split; no communication
  std::vector<SplitWeight> rows;                ///< contractions are split; each result is a partial sum
  std::vector<SplitWeight> lookups;             ///< vocabulary embeddings: rows of the table are split
  std::vector<SplitWeight> heads;               ///< results are split, and are outputs
  std::map<const Value*, std::string> refused;  ///< weights that stay whole, and why
  bool empty() const { return rows.empty() && lookups.empty() && heads.empty(); }
};

/// Finds them from rules and layouts, not from names: a row-parallel matmul is one whose contraction dimension is tied,
/// through operators that can all be split along it, to the result dimension of another matmul with a weight; that one
/// is its column-parallel partner. No weight is split twice by the axis. Example: x·W1 → Relu → ·W2 splits W1's columns
/// and W2's rows; q, k and v projections are partners of the output projection through Attention's heads. A mixture of
/// experts has both within one node.
MegatronPlan find_megatron(const PresetContext& context);

}  // namespace tessera::spmd
