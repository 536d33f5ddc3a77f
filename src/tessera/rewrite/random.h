#pragma once

#include <cstdint>

#include "tessera/ir/graph.h"

/// What a training run decides about random numbers (docs/random.md).
namespace tessera::rewrite {

/// The number of Dropouts, in functions too, that drop elements (or may), or that never do.
int count_dropouts(OnnxModel& model, bool dropping);
/// Makes every Dropout drop elements, or none. Call it before rewriting, which removes those that drop none.
void switch_dropouts(OnnxModel& model, bool dropping);
/// Mixes a seed into the keys of all operators that draw random numbers. Call it after rewriting.
void seed_random(Graph& graph, uint64_t seed);

}  // namespace tessera::rewrite
