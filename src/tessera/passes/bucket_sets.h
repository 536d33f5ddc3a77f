#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/passes/dependences.h"
#include "tessera/spmd/program.h"

namespace tessera::passes {

/// Collectives that start as one; nodes by their numbers in Dependences.
struct BucketSet {
  std::vector<int> members;  ///< ascending; two or more
  int place = 0;             ///< the node at whose position they start
  std::vector<int> early;    ///< nodes after `place` that make operands, and so must run before it
};

/// The most bytes of a bucket over these axes.
using BucketBytes = std::function<double(const std::vector<std::string>& axes)>;

/// Chooses the buckets of a program. Collectives of one kind, group, reduction, type and place may share one if none
/// depends on another. The first member takes the following ones while their bytes (of the whole tensors) stay within
/// the limit, and skips up to as many bytes that do not fit. A later member joins in one of two ways:
///
///   - It moves forward, if the nodes that compute its operand read and write no more bytes than a bucket has. Gathers
///     of stored parameters do.
///   - The others wait for it, if every communication that depends on one of them depends on it, too (these could not
///     start earlier anyway), and if the nodes that would wait with them read and write no more bytes than a bucket
///     has. Gradients that only updates read do, and those that one norm reads; parameters that the next product reads
///     do not.
///
/// Example: g1 = AllReduce(dw1), dx = AllReduce(p), g2 = AllReduce(dw2), where dw2 = MatMul(q, dx). g1 waits for g2,
/// since no communication needs it. dx joins neither: g2 depends on it.
///
/// Invariant: with every bucket as one node, the graph has no cycle.
std::vector<BucketSet> bucket_sets(const spmd::Program& program, const Dependences& dependences,
                                   const BucketBytes& most);

/// An order of all nodes in which a bucket's members are neighbours. Other nodes keep their order, except those that a
/// bucket needs earlier and those that wait for one.
std::vector<Node*> in_buckets(const Dependences& dependences, const std::vector<BucketSet>& buckets);

}  // namespace tessera::passes
