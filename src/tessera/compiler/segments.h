#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::compiler {

/// A part of a model that can be compiled once the parts before it have run.
struct Segment {
  OnnxModel model;                  ///< its inputs are the whole model's, and results of parts before it
  std::vector<std::string> values;  ///< inputs whose elements must be known to compile it
  bool may_have_parts = false;      ///< once these are known; see segments_of()
  /// Results whose sizes depend on data, which are computed from `model`'s outputs and all that is known before it, in
  /// this order (kernels/data_sized.h). Names of operands and results are those of tensors.
  std::vector<Node> data_sized;
  std::vector<std::vector<std::string>> operands, results;  ///< per node of `data_sized`; "": left out
  std::map<std::string, Tensor> constants;                  ///< operands of `data_sized` that the model's file holds
};

/// The model in parts. An operator that must know an operand's elements before it is compiled (OpDef::values) is in a
/// part after the one that computes it; what depends on an operator whose result's size depends on its operands'
/// elements (NonZero) is in a part after that operator. A model without either is one part. The parts' operators are in
/// their newest forms, outside of functions.
///
/// An If whose branches hold such operators goes in a part after the one that computes its condition, which is among
/// that part's values; with that value, the part is a model that may have parts of its own.
///
///     n = NonZero (x);  y = Gather (x, n);  k = ReduceMax (y);  z = TopK (y, k)
///     → part 0: nothing, then n;  part 1: y and k;  part 2, whose values are k: z
///
/// Throws a user error if the model has states that step and more than one part.
std::vector<Segment> segments_of(const OnnxModel& model);

/// The model with these inputs as constants. Throws a user error for a name that no input has, and for another type.
OnnxModel with_values(const OnnxModel& model, const std::map<std::string, Tensor>& values);

}  // namespace tessera::compiler
