#pragma once

#include <string>
#include <variant>
#include <vector>

#include "tessera/ir/flow.h"
#include "tessera/passes/block_ring.h"

namespace tessera::passes {

/// A ReduceScatter of a product that nothing else reads.
struct ProductScatter {
  Node *product = nullptr, *scatter = nullptr;
  size_t dim = 0;             ///< that is scattered
  std::vector<AxisRef> axes;  ///< of the group, major first
  std::string value;          ///< name of the global value
};

/// What the reduce-scatter offers for decomposition, or why it offers nothing, as a part of a sentence.
std::variant<ProductScatter, std::string> product_scatter(const spmd::Program& program, const flow::Flow& flow,
                                                          Node* scatter);

/// Rewrites a product and the reduce-scatter of its result to a ring, in which sums go around: a rank computes the
/// block of the member that is farthest away, sends it on, and adds its own product to each block that comes by.
/// Nothing is sent that has not been computed (Wang et al. 2023 begin with zeros). On 3 members, one way; x[j] are the
/// rows of x from which block j of the result follows:
///
///     p = MatMul (x, w), y = ReduceScatter (p) sum dim 0
///
///     p2 = MatMul (x[me + 2], w);  Send p2 to the next member;  s1 = Recv from the member before
///     s1 = s1 + MatMul (x[me + 1], w);  Send s1;                s0 = Recv
///     y = s0 + MatMul (x[me], w)
///
/// Block j is the sum of the products of members j + 1, j + 2, …, j, in this order, where the first follows the last.
/// Both ways, the members before the owner add in this order from the farthest on, then the owner, who then adds the
/// sum of the members behind, which they make from the farthest on, too. Either way the order is that of the program's
/// additions, whatever runs it. Blocks may be uneven, or empty.
void decompose(spmd::Program& program, const ProductScatter& site, const RingForm& form);

}  // namespace tessera::passes
