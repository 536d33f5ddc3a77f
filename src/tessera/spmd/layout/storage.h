#pragma once

#include <map>
#include <set>

#include "tessera/ir/value_map.h"
#include "tessera/mesh/sharding.h"

namespace tessera::spmd {

/// The layouts in which states are stored between runs, where they are given. Compute layouts are independent of these:
/// an edge from one to the other is a reshard.
using Storage = std::map<const Value*, Sharding>;

/// The operators that work element by element on changing states with a storage layout, and on their next values: those
/// that read such a state or make its next value, those before and after them as long as tensors have as many elements
/// as the state, and sums of all these elements. This is how an optimizer updates shards where they are stored.
/// Example, with w and its momentum m stored as [8{dp}, 4]:
///
///     g = MatMul(xT, dy)                     not one of them: its result is resharded to the storage layout of w
///     m' = Add(Mul(m, 0.9), g)               on shards
///     w' = Sub(w, Mul(m', lr))               on shards
std::set<const Node*> updates_of(const Graph& graph, const Storage& storage);
/// The same for one state that has a next value.
std::set<const Node*> update_of(const Value& state);

/// The operators of the updates of states that the model reads where they are split in `storage`: of parameters, and
/// not of what only an optimizer has. Gradients are scattered before these operators add them up, so that no rank holds
/// whole sums from one micro-batch to the next. Those of a parameter's uses in one micro-batch are added up first, and
/// scattered once.
std::set<const Node*> scattered_sums(const Storage& storage);

/// States with a storage layout, and values computed only from such states, element by element. A use fetches them from
/// storage, and keeps no copy for a later use.
ValueSet fetched_values(const Graph& graph, const Storage& storage);

}  // namespace tessera::spmd
