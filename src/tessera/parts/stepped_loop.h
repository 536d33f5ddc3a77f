#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tessera/parts/segments.h"
#include "tessera/tensors.h"

namespace tessera::parts {

/// Types of tensors as programs know them: extents that differ between runs are symbols.
using Types = std::map<std::string, TensorType>;

TensorType exact_type(const Tensor& tensor);

/// A type that fits both: extents that differ become symbols of their own, named after the tensor. If even the element
/// types or the ranks differ, it is the second.
TensorType common_type(const std::string& name, const TensorType& before, const TensorType& now);

/// Runs the iterations of a Loop or Scan one after the other, on whole tensors, and gives its results.
///
/// `operands` are the node's (dtype undefined: left out), and `operand_types` their types. `known` and `types` hold
/// whatever the body may read from around it. `run_body` computes the body's outputs from what its first argument
/// holds, and puts them and their types there. `found` keeps the types that carried values and rows turned out to have,
/// so that a later run needs no other programs; `result_types` gets those of the results.
///
/// Throws a user error for rows of different extents, and for scan inputs of different lengths.
std::vector<Tensor> run_stepped(const SteppedLoop& loop, const Node& node, const std::vector<Tensor>& operands,
                                const std::vector<TensorType>& operand_types, const Tensors& known, const Types& types,
                                const std::function<void(Tensors&, Types&)>& run_body, Types& found,
                                std::vector<TensorType>& result_types);

}  // namespace tessera::parts
