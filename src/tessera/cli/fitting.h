#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/training.h"

namespace tessera::cli {

/// A training run that is to fit into memory.
struct Fitting {
  const Model& model;
  Training training;
  Mesh mesh;
  Plan plan;
  CompileOptions options;  ///< whose limit is that of a process
};

/// What a person may change so that a process needs less, the smallest change first: activations that are computed
/// again, micro-batches, states that are stored split, and these together. Returns "; it fits with --recompute=auto"
/// for the first that fits; if none does, which of them needs least.
std::string change_that_fits(const Fitting& fitting);

/// A rank that needs as much as any; with stages, it need not be the first.
int64_t largest_rank(const Program& program);

}  // namespace tessera::cli
