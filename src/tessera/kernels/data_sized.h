#pragma once

#include <vector>

#include "tessera/ir/graph.h"

/// Operators whose results' sizes depend on the elements of their operands, so that no program can hold them: they run
/// between programs, on whole tensors.
namespace tessera::kernels {

/// The results of NonZero, Compress, Unique or NonMaxSuppression for these operands (dtype undefined: left out), as
/// many as the operator has. Throws a user error for operands that the operator does not take.
std::vector<Tensor> run_data_sized(const Node& node, const std::vector<Tensor>& operands);

/// The shape of a result that has these extents in this run: the extent that elements decide is `counted`; the others
/// are what they are in every run, or those of `operand`, the shape of the node's first operand.
Shape data_sized_shape(const Node& node, size_t result, const Dims& extents, const Shape& operand, const Expr& counted);

}  // namespace tessera::kernels
