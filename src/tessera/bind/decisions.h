#pragma once

#include "tessera/bind/dependents.h"
#include "tessera/bind/results.h"
#include "tessera/bind/states.h"

namespace tessera::bind {

/// What all bindings of a program share: the decisions made for the first sizes, and the machine program for them.
/// Bindings for other sizes hold only the differences. Immutable.
struct Decisions {
  std::shared_ptr<const Grouping> grouping;
  Regions regions;
  Destinations direct;  ///< results that are made in the memory of outputs, states or loops
  PlacedStates states;
  PackedWeights packed;
  Order order;
  bool communicates = false;
  Uses uses;
  std::vector<Expr> flops;                                ///< by step
  std::map<const Value*, std::vector<int64_t>> elements;  ///< of expressions, at the first sizes
  Symbols symbols;                                        ///< the first sizes
  Dependents dependents;
  MachineProgram machine;  ///< at the first sizes
};

}  // namespace tessera::bind
