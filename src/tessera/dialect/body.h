#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/dialect/group.h"
#include "tessera/ir/graph.h"
#include "tessera/ir/reduction.h"

namespace tessera::dialect {

class Library;

/// The specification of a function: an operator of the dialect, in one of its forms, over one group.
struct Spec {
  std::string op;                 ///< "AllReduce"
  std::string form;               ///< "ring"; library.cpp's table has all forms
  std::vector<std::string> axes;  ///< of the group; of AxisIndex the axis
  Reduction reduction = Reduction::sum;
  bool float32 = false;          ///< 16-bit floats are reduced in float32
  bool boolean = false;          ///< elements are bools: sum and max are `or`, min is `and`
  int64_t dim = 0;               ///< of blocks; of AllToAll split_dim
  int64_t concat_dim = 0;        ///< of AllToAll
  int64_t root = 0;              ///< member
  int64_t offset = 0;            ///< of Neighbor
  std::vector<int64_t> targets;  ///< of Permute
};

/// The body of a function while it is written: nodes over Send, Recv and ONNX's own operators.
///
/// Indices and extents are int64 tensors of one element ("numbers"), peers and conditions scalars. Members are this
/// rank's group; all integer arithmetic starts at the operand `rank`. Equal arithmetic is written once.
class Body {
 public:
  Body(Graph& graph, const Spec& spec, Library& library);

  const Spec& spec() const { return spec_; }
  const Mesh& mesh() const;
  int64_t members() const { return group_.size; }
  Value* operand(std::string_view name);  ///< of the function, by name

  Value* op(std::string_view type, std::vector<Value*> operands, std::vector<Attribute> attributes = {});
  /// The same for an operator whose result depends only on its operands; a repeated request returns the same node.
  Value* number_op(std::string_view type, std::vector<Value*> operands, std::vector<Attribute> attributes = {});
  Value* number(int64_t value) { return numbers({value}); }
  Value* numbers(const std::vector<int64_t>& values);  ///< rank 1
  Value* scalar(Value* number);                        ///< rank 0

  /// This rank's index in its group, and that of the member `step` places after it, wrapping around.
  Value* me();
  Value* member_at(int64_t step);
  /// The rank of a member, as a scalar; -1 (nobody) if a condition is given and is false.
  Value* peer(Value* member, Value* condition = nullptr);
  Value* is_me(int64_t member);  ///< a scalar condition
  Value* less(Value* a, int64_t b);

  /// First element and extent of a member's block; `bounds` are the n + 1 ends of blocks, from 0.
  Value* start_of(Value* bounds, Value* member);
  Value* extent_of(Value* bounds, Value* member);
  Value* block_of(Value* data, Value* bounds, Value* member, int64_t dim);
  Value* slice(Value* data, Value* begin, Value* end, int64_t dim);
  Value* concat(std::vector<Value*> pieces, int64_t dim);
  /// Reorders blocks from the order of members me + 1, …, n - 1, 0, …, me to the order 0, …, n - 1.
  Value* unrotate(Value* rotated, Value* bounds, int64_t dim);
  Value* shape_of(Value* data);
  Value* with_extent(Value* shape, int64_t dim, Value* extent);
  Value* reshape(Value* data, Value* shape);
  /// Any data as a vector of shape [elements].
  Value* flat(Value* data);
  /// The n + 1 bounds of a balanced split of `total` elements among `members`, the larger blocks first.
  Value* balanced_bounds(Value* total, int64_t members);
  Value* zeros(Value* like, Value* shape);

  Value* reduce(Value* a, Value* b);  ///< by the reduction of the spec
  Value* mean(Value* sum);            ///< divided by the number of members if the reduction is a mean, else unchanged

  /// A message carries the collective's `value` and its step in the collective, equal on both sides.
  void send(Value* data, Value* peer, const std::string& step);
  Value* recv(Value* peer, Value* shape, const std::string& step);
  /// Calls another function of the library on these operands and this function's rank. The data's type is `dtype`; if
  /// it is not given, that of this function.
  Value* call(const Spec& spec, std::vector<Value*> operands, std::optional<DType> dtype = std::nullopt);

 private:
  Value* base();  // the rank of the group's member 0
  Value* me_by_axes();
  Value* peer_by_handle(Value* member);

  Graph& graph_;
  Spec spec_;
  GroupDigits group_;
  Library& library_;
  std::map<std::string, Value*> known_;
};

}  // namespace tessera::dialect
