#pragma once

#include "tessera/bind/arena.h"
#include "tessera/bind/steps.h"
#include "tessera/bind/uses.h"

namespace tessera::bind {

/// The inputs of placing results.
struct ResultSources {
  const StepSources& steps;
  const Order& order;
  const Uses& uses;
  const Destinations& direct;  ///< results that are made in the memory of outputs, states or loops
};

/// Places the operands, results and scratch memory of a prepared step. A result gets memory of its own, of the caller,
/// of a state, or of an operand that this step reads last. Call it in running order, since results take over the memory
/// of operands.
void place_step(const ResultSources& of, int step, Step& made, Arena& arena);

/// The same at other sizes, with the buffers of `before`, which may get other lengths. False if the step would use
/// other buffers.
bool place_step_again(const ResultSources& of, int step, const Step& before, Step& made, Arena& arena);

}  // namespace tessera::bind
