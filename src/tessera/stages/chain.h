#pragma once

#include <vector>

#include "tessera/stages/roles.h"

namespace tessera::stages {

/// The nodes of Role::chain in an order in which each branch stands just before what it joins, so that few values are
/// alive between two nodes.
struct Chain {
  std::vector<int> nodes;
  /// By place, the bytes of results of nodes up to it that later ones read.
  std::vector<double> alive;
  /// By node, its place; -1: not of the chain.
  std::vector<int> place;

  int size() const { return static_cast<int>(nodes.size()); }
};

Chain chain_of(const OneBatch& batch, const Roles& roles, const Measure& measure);

/// The largest value that is alive after a place; null: none is.
const Value* largest_alive(const Chain& chain, const OneBatch& batch, const Measure& measure, int place);

}  // namespace tessera::stages
