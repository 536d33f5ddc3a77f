#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/batches.h"
#include "tessera/training.h"

namespace tessera::trainer {

/// A training run that is to fit into memory.
struct Fitting {
  const Model& model;
  Training training;
  Mesh mesh;
  Plan plan;
  CompileOptions options;  ///< whose limit is that of a process
};

/// What a person may change so that a process needs less, the smallest change first: activations that are computed
/// again, micro-batches, states that are stored split, and these together. Returns "; it fits with `recompute=auto`"
/// for the first that fits; if none does, which of them needs least.
std::string change_that_fits(const Fitting& fitting);

}  // namespace tessera::trainer
