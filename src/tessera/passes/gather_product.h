#pragma once

#include <string>
#include <variant>
#include <vector>

#include "tessera/ir/flow.h"
#include "tessera/passes/block_ring.h"

namespace tessera::passes {

/// An AllGather whose result products read, directly or after a Transpose.
struct GatherProduct {
  Node* gather = nullptr;
  size_t dim = 0;             ///< that is gathered
  std::vector<AxisRef> axes;  ///< of the group, major first
  std::string value;          ///< name of the global value
  std::vector<Node*> products;
};

/// The products that read a value, or what movements make of it, of which each rank has one block in a dimension
/// first, and can be computed block by block.
struct ProductsAlong {
  std::vector<Node*> products;
  bool same_terms = false;  ///< another sums over the dimension, and has the same result on several members
};
ProductsAlong products_along(const spmd::Program& program, const flow::Flow& flow, const Value* whole, size_t dim,
                             const std::vector<AxisRef>& axes);

/// What the gather offers for decomposition, or why it offers nothing, as a part of a sentence: "no product reads it".
std::variant<GatherProduct, std::string> gather_product(const spmd::Program& program, const flow::Flow& flow,
                                                        Node* gather);

/// Rewrites an all-gather and products of what it gathers to a ring (Wang et al. 2023, "Overlap Communication with
/// Dependent Computation via Decomposition in Large Deep Learning Models"): a rank begins with the product of its own
/// block, and passes blocks on while it multiplies. On 3 members, one way, for rows x of which each has a third:
///
///     xs = AllGather (x) dim 0, y = MatMul (xs, w)
///
///     Send x to the next member;  y0 = MatMul (x, w);  x1 = Recv from the member before
///     Send x1;                    y1 = MatMul (x1, w); x2 = Recv
///                                 y2 = MatMul (x2, w)
///     y = y2, y1, y0 in the order of the blocks' members: a Concat (block_ring.h)
///
/// Elements of y are computed as before, from all of a row and a column. If the gathered dimension is the one that
/// products sum over, each block gives a term instead, with the slices of the other operand that belong to it:
///
///     xs = AllGather (x) dim 1, y = MatMul (xs, w)
///     y = MatMul (x, w[rows of x]) + MatMul (x1, w[rows of x1]) + MatMul (x2, w[rows of x2])
///
/// Then a rank adds its own term, that of the member before, that of the member behind, of the second member before,
/// and so on; one way, of the members before, in turn. So members add in different orders, and all must have results of
/// their own: else replicas would differ in their last bits.
///
/// All products that read the gathered value share the ring. For other nodes that read it, and for outputs, a Concat
/// joins the blocks. Blocks may be uneven, or empty. `site` is of this program, as it is.
void decompose(spmd::Program& program, const GatherProduct& site, const RingForm& form);

}  // namespace tessera::passes
