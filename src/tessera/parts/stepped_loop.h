#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tessera/parts/segments.h"
#include "tessera/tensors.h"

namespace tessera::parts {

/// Types of tensors as programs state them: extents that differ between runs are symbols.
using Types = std::map<std::string, TensorType>;

TensorType exact_type(const Tensor& tensor);

/// A type that fits both: extents that differ become new symbols, named after the tensor. If the element types or the
/// ranks differ, the second type.
TensorType common_type(const std::string& name, const TensorType& before, const TensorType& now);

/// Runs the iterations of a Loop or Scan one after the other, on whole tensors, and returns its results.
///
/// `operands` are the node's operands (dtype undefined: absent), and `operand_types` their types. `known` and `types`
/// hold the outer values that the body may read. `run_body` computes the body's outputs from its first argument, and
/// adds them and their types there. `found` keeps the types that carried values and rows had, so that later runs can
/// use the same programs; `result_types` gets the types of the results.
///
/// Throws a user error if rows differ in their extents, or scan inputs in their lengths.
std::vector<Tensor> run_stepped(const SteppedLoop& loop, const Node& node, const std::vector<Tensor>& operands,
                                const std::vector<TensorType>& operand_types, const Tensors& known, const Types& types,
                                const std::function<void(Tensors&, Types&)>& run_body, Types& found,
                                std::vector<TensorType>& result_types);

}  // namespace tessera::parts
