#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/ops/library/one_program.h"

namespace tessera::parts {

struct SteppedLoop;

/// A node that runs between parts, on whole tensors: its results' sizes depend on data (kernels/data_sized.h), or it is
/// a Loop or Scan whose iterations are models of their own.
struct Between {
  Node node;                                   ///< its type, name and attributes
  std::vector<std::string> operands, results;  ///< names of tensors; "": left out
  std::shared_ptr<const SteppedLoop> loop;     ///< of a Loop or Scan
};

/// A part of a model that can be compiled once the parts before it have run.
struct Segment {
  OnnxModel model;                  ///< its inputs are the whole model's, and results of parts before it
  std::vector<std::string> values;  ///< inputs whose elements must be known to compile it
  std::set<std::string> sizes;      ///< symbols of the inputs' shapes that must be numbers then
  /// What runs after it, in this order, with `model`'s outputs and all that is known before it.
  std::vector<Between> after;
  std::map<std::string, Tensor> constants;  ///< operands of `after` that the model's file holds
};

/// A Loop or Scan in pieces. Names are those of the body's inputs and outputs, which are unique in the model.
struct SteppedLoop {
  Segment body;  ///< its inputs are also what the body reads from around it
  std::string prefix;
  std::string iteration, runs, goes_on;  ///< a Loop's: an int64 and a bool, and the condition that it computes
  Dims iteration_dims;                   ///< none, or 1 if the body requires it
  std::vector<std::string> carried, next;
  std::vector<std::string> items, rows;  ///< of scan inputs and outputs
  std::vector<int64_t> item_axes, row_axes;
  std::vector<bool> item_reversed, row_reversed;
  std::vector<TensorType> row_types;  ///< as the file declares them

  bool is_scan() const { return goes_on.empty(); }
};

/// The model in parts. An operator that must know an operand's elements before it is compiled (OpDef::values) is in a
/// part after the one that computes it; what depends on an operator whose result's size depends on its operands'
/// elements (NonZero) is in a part after that operator. A model without either is one part. The parts' operators are in
/// their newest forms, outside of functions.
///
/// An If whose branches hold such operators goes in a part after the one that computes its condition, which is among
/// that part's values. A Loop or Scan whose body holds such operators runs between parts. Once it has values and types,
/// each part is a model that may have parts of its own.
///
/// A part that reads a sequence which nodes before it put together of tensors takes the tensors and puts it together
/// again.
///
///     n = NonZero (x);  y = Gather (x, n);  k = ReduceMax (y);  z = TopK (y, k)
///     → part 0: nothing, then n;  part 1: y and k;  part 2, whose values are k: z
///
/// `needs` is what rewriting the model has shown to be no part of one program.
///
/// Throws a user error if the model has states that step and more than one part, and for a sequence that a loop or a
/// branch gives in one part and another part reads.
std::vector<Segment> segments_of(const OnnxModel& model, const ops::Needs& needs = {});

/// The model with these inputs as constants. Throws a user error for a name that no input has, and for another type.
OnnxModel with_values(const OnnxModel& model, const std::map<std::string, Tensor>& values);

}  // namespace tessera::parts
