#pragma once

#include <vector>

#include "tessera/stages/measure.h"
#include "tessera/stages/one_batch.h"

namespace tessera::stages {

/// What a node is for.
enum class Role {
  free,     ///< of the forward pass; needs no parameters, so that every stage can compute it: masks, positions
  weights,  ///< of the forward pass; needs parameters, but no inputs: a cast or a product of weights
  chain,    ///< of the forward pass; needs both. Blocks consist of these.
  other,    ///< all else: the backward pass, the norm of gradients, updates
};

struct Roles {
  std::vector<Role> of;  ///< by node

  bool is_forward(int node) const { return of[static_cast<size_t>(node)] != Role::other; }
  bool is_staged(int node) const {
    const Role role = of[static_cast<size_t>(node)];
    return role == Role::chain || role == Role::weights;
  }
};

/// The forward pass is what the loss is computed from. The loss is the output that depends on the most states, of more
/// than one element, and that does so with the fewest nodes: outputs that are computed from gradients, as their norm,
/// need more. Other outputs that depend on such states belong to the forward pass, too, unless a next value of a state
/// shares work with them: an accuracy, and in a graph without gradients all outputs.
///
/// Throws a user error if all outputs are next values of states.
Roles roles_of(const Graph& graph, const OneBatch& batch, const Measure& measure);

}  // namespace tessera::stages
