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

/// A node that runs between parts, on whole tensors: the sizes of its results depend on data (kernels/data_sized.h), or
/// it is a Loop or Scan whose iterations are models of their own.
struct Between {
  Node node;                                   ///< its type, name and attributes
  std::vector<std::string> operands, results;  ///< names of tensors; "": absent
  std::shared_ptr<const SteppedLoop> loop;     ///< of a Loop or Scan
};

/// A part of a model that can be compiled once the parts before it have run.
struct Segment {
  OnnxModel model;                  ///< its inputs are inputs of the whole model, and results of earlier parts
  std::vector<std::string> values;  ///< inputs whose elements must be known to compile it
  std::set<std::string> sizes;      ///< symbols of the inputs' shapes whose sizes must be known to compile it
  /// Nodes that run after it, in this order, on `model`'s outputs and everything known before.
  std::vector<Between> after;
  std::map<std::string, Tensor> constants;  ///< operands of `after` that the model's file holds
};

/// A Loop or Scan in pieces. Names are those of the body's inputs and outputs, which are unique in the model.
struct SteppedLoop {
  Segment body;  ///< its inputs include the outer values that the body reads
  std::string prefix;
  std::string iteration, runs,
      goes_on;  ///< of a Loop: names of the iteration (int64), the condition (bool), and the condition that it computes
  Dims iteration_dims;  ///< empty, or [1] if the body requires it
  std::vector<std::string> carried, next;
  std::vector<std::string> items, rows;  ///< of scan inputs and outputs
  std::vector<int64_t> item_axes, row_axes;
  std::vector<bool> item_reversed, row_reversed;
  std::vector<TensorType> row_types;  ///< as the file declares them

  bool is_scan() const { return goes_on.empty(); }
};

/// Cuts the model into parts. An operator that must know an operand's elements before it is compiled (OpDef::values) is
/// in a part after the one that computes the operand; a node that depends on an operator whose result's size depends on
/// data (NonZero) is in a part after that operator. A model without such operators is one part. The parts' operators
/// have their newest forms, and functions are inlined.
///
/// An If whose branches hold such operators is in a part after the one that computes its condition, which is among that
/// part's values. A Loop or Scan whose body holds such operators runs between parts. Once its values and types are
/// known, each part is a model that may have parts of its own.
///
/// A part that reads a sequence built by earlier nodes takes its tensors and builds it again.
///
///     n = NonZero (x);  y = Gather (x, n);  k = ReduceMax (y);  z = TopK (y, k)
///     → part 0: nothing, then n;  part 1: y and k;  part 2, whose values are k: z
///
/// `needs`: the nodes that cannot be in one program with the others, as rewriting has shown.
///
/// Throws a user error if the model has changing states and more than one part, or if a sequence made by a loop or
/// branch in one part is read in another.
std::vector<Segment> segments_of(const OnnxModel& model, const ops::Needs& needs = {});

/// The model with these inputs as constants. Throws a user error if a name is not an input, or the type differs.
OnnxModel with_values(const OnnxModel& model, const std::map<std::string, Tensor>& values);

}  // namespace tessera::parts
