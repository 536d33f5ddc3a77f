#pragma once

#include <vector>

#include "tessera/ir/graph.h"

/// Operators whose results' sizes depend on the elements of their operands, so that no program can hold them: they run
/// between programs, on whole tensors.
namespace tessera::kernels {

/// The results of NonZero, Compress, Unique or NonMaxSuppression for these operands (dtype undefined: left out), as
/// many as the operator has. Throws a user error for operands that the operator does not take.
std::vector<Tensor> run_data_sized(const Node& node, const std::vector<Tensor>& operands);

}  // namespace tessera::kernels
