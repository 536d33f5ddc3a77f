#pragma once

#include <cstdint>

#include "tessera/ir/graph.h"

/// What a training run decides about random numbers (docs/random.md).
namespace tessera::rewrite {

/// The Dropouts of a model that drop elements (or may), or those that do not, functions' included.
int count_dropouts(OnnxModel& model, bool dropping);
/// Makes every Dropout drop elements, or none. Before rewriting, which removes those that drop none.
void switch_dropouts(OnnxModel& model, bool dropping);
/// Mixes a seed into the keys of all operators that draw random numbers. After rewriting.
void seed_random(Graph& graph, uint64_t seed);

}  // namespace tessera::rewrite
