#pragma once

#include <string>
#include <variant>
#include <vector>

#include "tessera/ir/flow.h"
#include "tessera/passes/block_ring.h"

namespace tessera::passes {

/// An AllReduce of a product that nothing else reads, as a ReduceScatter and an AllGather of blocks of a dimension.
struct ProductReduce {
  Node *product = nullptr, *reduce = nullptr;
  size_t dim = 0;              ///< of the blocks
  std::vector<AxisRef> axes;   ///< of the group, major first
  std::string value;           ///< name of the global value
  std::vector<Node*> readers;  ///< products that read the sum, and could read its blocks as they are gathered
};

/// What the all-reduce offers for decomposition, or why it offers nothing, as a part of a sentence. Its blocks are of
/// the dimension that the group divides most evenly, the first of several, among those along which the product can be
/// computed in pieces and that have an element for each member, at the program's hints.
std::variant<ProductReduce, std::string> product_reduce(const spmd::Program& program, const flow::Flow& flow,
                                                        Node* reduce);

/// Rewrites an all-reduce of a product to its two halves, of which the first goes around a ring beside the product
/// (product_scatter.h), and, if the form says so, the second beside the products that read the sum (gather_product.h):
///
///     p = MatMul (x, w), y = AllReduce (p) sum
///
///     p = MatMul (x, w), s = ReduceScatter (p) sum dim 0, y = AllGather (s) dim 0
///
/// Each block is summed by one chain of members, and gathered from the last of them: so all members have the same bits.
void decompose(spmd::Program& program, const ProductReduce& site, const RingForm& form);

}  // namespace tessera::passes
