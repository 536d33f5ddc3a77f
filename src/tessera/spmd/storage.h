#pragma once

#include <map>
#include <set>

#include "tessera/ir/graph.h"
#include "tessera/mesh/sharding.h"

namespace tessera::spmd {

/// How states are stored between runs, where somebody has said so. What their uses compute in is another matter: an
/// edge from one to the other is a reshard.
using Storage = std::map<const Value*, Sharding>;

/// The operators that work element by element on states that change and are stored as said, and on what these become:
/// those that read such a state or make its next value, and those before and after them, as far as tensors have as many
/// elements as the state. So an optimizer updates shards where they are stored. Example, w and its momentum m stored as
/// [8{dp}, 4]:
///
///     g = MatMul(xT, dy)                     not one of them: what it makes goes to where w is stored
///     m' = Add(Mul(m, 0.9), g)               on shards
///     w' = Sub(w, Mul(m', lr))               on shards
std::set<const Node*> updates_of(const Graph& graph, const Storage& storage);

/// Stored states, and values that are made of nothing else, element by element: a use fetches them from where they are
/// stored, and keeps nothing of them for a later one.
std::set<const Value*> fetched_values(const Graph& graph, const Storage& storage);

}  // namespace tessera::spmd
