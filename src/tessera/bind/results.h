#pragma once

#include "tessera/bind/arena.h"
#include "tessera/bind/steps.h"
#include "tessera/bind/uses.h"

namespace tessera::bind {

/// What the places of results depend on.
struct ResultSources {
  const StepSources& steps;
  const Order& order;
  const Uses& uses;
  const Destinations& direct;  ///< results that are made in the memory of outputs, states or loops
};

/// Places the operands, the results and the scratch memory of a prepared step: each result in memory of its own, of the
/// caller, of a state, or of an operand that ends there. Call it in running order, since a result may take over the
/// memory of an operand that nobody needs any more.
void place_step(const ResultSources& of, int step, Step& made, Arena& arena);

/// The same at other sizes: the step as `before`, in the same buffers, some of them longer or shorter. False: it would
/// want other buffers.
bool place_step_again(const ResultSources& of, int step, const Step& before, Step& made, Arena& arena);

}  // namespace tessera::bind
