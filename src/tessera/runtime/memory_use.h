#pragma once

#include "tessera/bind/machine.h"
#include "tessera/spmd/program.h"

namespace tessera::runtime {

/// Bytes of one rank at its peak.
struct MemoryUse {
  size_t peak = 0;         ///< all: states, their packed forms and second buffers, inputs, scratch memory, results
  size_t activations = 0;  ///< results from which the first output is computed, also when they are recomputed, and
                           ///< results of the forward pass of a pipeline's stages
  size_t gradients = 0;    ///< all other results
  size_t copies = 0;       ///< of states, for checkpoints
};

/// The contents of the arena during each action; `peak` is all of it.
std::vector<MemoryUse> arena_over_time(const bind::MachineProgram& machine, const spmd::Program& program);

/// The same at the peak.
MemoryUse arena_use(const bind::MachineProgram& machine, const spmd::Program& program);

/// What a rank holds during an action of its machine program.
struct MemoryMoment {
  std::string operation;  ///< "MatMul 'h.0'", "wait for AllReduce 'h.0'"
  MemoryUse use;
};

}  // namespace tessera::runtime
