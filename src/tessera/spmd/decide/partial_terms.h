#pragma once

#include <set>
#include <vector>

#include "tessera/ir/value_map.h"
#include "tessera/spmd/decide/decide.h"

namespace tessera::spmd {

/// Axes per subfactor of a node.
using Assignment = std::vector<std::vector<AxisRef>>;

/// Which results are partial: terms of a sum (or max, or min) that ranks have not reduced yet. A node makes terms where
/// it contracts a split dimension, and keeps its operands' terms where it is linear in them and its result is no
/// larger. Example: h = MatMul (x[-, tp], w[tp, -]) is partial over tp; so is Add (h, h2), if h2 is, too; Relu (h) is
/// not.
///
/// `versions` and `wide` must outlive it and grow while nodes are decided in order. `versions` has the layouts of
/// results so far, the first as produced; `wide` has the partial 16-bit results that are held in float32.
class PartialTerms {
 public:
  using Versions = ValueMap<std::vector<Sharding>>;

  PartialTerms(const Graph& graph, const Layout& layout, const Mesh& mesh, const Hints& hints, const Versions& versions,
               const ValueSet& wide);

  /// The terms that stay partial through a node. Without axes and operands, all are reduced first.
  struct Kept {
    std::vector<PartialAxis> axes;
    std::vector<int> operands;   ///< that are partial over some of them
    std::vector<HeldTerm> held;  ///< operands of a sum that are not partial over all of them
  };
  Kept kept(const NodeLayout& node, const Assignment& assignment) const;

  /// The assignment without the axes over which operands are partial, where such axes are the minor ones of a split.
  Assignment without_partial_axes(const NodeLayout& node, Assignment assignment) const;
  /// Operand or result `t` of a node for an assignment, with the terms that the node itself makes.
  Sharding laid_out(const NodeLayout& node, const Assignment& assignment, bool result, size_t t) const;
  /// Another operand, also partial over these axes, of a sum that the node's result reaches through sums alone: both
  /// can then be reduced at once. Null if there is none. Example: a gradient's norm adds the squares of split and of
  /// whole parameters one by one.
  const Value* other_term(const NodeLayout& node, const std::vector<PartialAxis>& axes) const;
  /// All such operands of the sums that the node's result is a term of, directly or through other sums.
  std::vector<const Value*> other_terms(const NodeLayout& node, const std::vector<PartialAxis>& axes) const;
  /// Bytes of the largest shard, symbols as hinted.
  double local_bytes(const Sharding& sharding, DType dtype) const;

 private:
  const Sharding* partial_layout(const NodeLayout& node, size_t t) const;
  static bool unite(std::vector<PartialAxis>& axes, const std::vector<PartialAxis>& more);
  const Node* sum_of(const Node* at, const std::vector<PartialAxis>& axes) const;
  void add_terms(const Node* sum, const Value* own, const std::vector<PartialAxis>& axes,
                 std::vector<const Value*>& terms) const;
  bool becomes_partial(const Value* value, const std::vector<PartialAxis>& axes) const;

  const Layout& layout_;
  const Mesh& mesh_;
  const Hints& hints_;
  const Versions& versions_;
  const ValueSet& wide_;
  std::set<const Value*> leaves_;  // outputs, and next values of states
};

}  // namespace tessera::spmd
