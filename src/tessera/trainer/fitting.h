#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/batches.h"
#include "tessera/training.h"

namespace tessera::trainer {

/// A training run that must fit into memory.
struct Fitting {
  const Model& model;
  Training training;
  Mesh mesh;
  Plan plan;
  CompileOptions options;  ///< whose limit is that of a process
};

/// A change of settings with which a process needs less memory: the first that fits of recomputation, micro-batches,
/// split storage of states, and these together. Returns "; it fits with `recompute=auto`"; if none fits, text that
/// names the one that needs least.
std::string change_that_fits(const Fitting& fitting);

}  // namespace tessera::trainer
