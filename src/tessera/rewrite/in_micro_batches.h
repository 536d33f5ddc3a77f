#pragma once

#include <set>
#include <string>

#include "tessera/rewrite/micro_batches.h"

namespace tessera::rewrite {

/// The rewritten model, repeated for each of `parts` parts of its batch (Model::in_micro_batches). A node of part n has
/// the micro-batch n, and ".partn" after its name and those of its results. `sizes` become those of a part, whose batch
/// has a symbol of its own; states in `kept` stay whole. `note`, if given, receives a line about the first node that
/// computes one result from several samples, or "".
///
/// Example: y = Relu (x) in two parts, x [batch], becomes x [2*batch_part], and y = [y.part0[0], y.part1[0],
/// y.part0[1], y.part1[1], …] of y.part0 = Relu (x[0, 2, 4, …]) and y.part1 = Relu (x[1, 3, 5, …]).
OnnxModel in_micro_batches(const OnnxModel& model, int parts, MicroBatches::Sizes& sizes,
                           const std::set<std::string>& kept, std::string* note = nullptr);

}  // namespace tessera::rewrite
