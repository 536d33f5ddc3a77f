#pragma once

#include <string>
#include <vector>

#include "tessera/stages/measure.h"
#include "tessera/stages/roles.h"
#include "tessera/stages/stages.h"

namespace tessera::stages::test {

/// A value that a node of one stage makes and nodes of another stage read.
struct Crossing {
  std::string value;
  int from = 0, to = 0;
  bool of_forward = false, to_forward = false;  ///< who makes it, and who reads it
  bool scalar = false;
  bool gradient = false;  ///< of the backward pass, and computed from what the last stage's forward pass made
  double bytes = 0;
};

/// Each value and each reading stage once, in one micro-batch.
std::vector<Crossing> crossings(const Graph& graph, const Stages& stages, const Symbols& sizes);

/// Expects that results of the forward pass go to later stages and gradients to earlier ones, but scalars on their way
/// to a sum to later ones; and that a stage gets no result of the forward pass for its backward pass alone.
void expect_ordered(const OnnxModel& model, const Stages& stages);

/// Expects that a parameter's next value is computed at the first stage that reads the parameter, and that of a
/// moment or statistic, "w.m" beside "w" or "b.mean" beside "b.scale", there as well.
void expect_updates_at_home(const OnnxModel& model, const Stages& stages);

}  // namespace tessera::stages::test
