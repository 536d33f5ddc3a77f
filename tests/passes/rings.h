#pragma once

#include <string>
#include <vector>

#include "tessera/passes/pipeline.h"

namespace tessera::passes {

/// Runs the pass alone, by default wherever it can, and gives its notes.
inline std::vector<std::string> put_in_rings(spmd::Program& program, RingAttention when = RingAttention::always,
                                             const Topology& topology = {}) {
  std::vector<std::string> notes;
  Context context{topology, notes};
  context.ring_attention = when;
  ring_attention(program, context);
  return notes;
}

}  // namespace tessera::passes
