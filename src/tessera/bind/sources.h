#pragma once

#include "tessera/bind/arena.h"
#include "tessera/bind/outputs.h"
#include "tessera/bind/uses.h"

namespace tessera::bind {

/// Whether the rank's part of an input is used in the caller's memory.
bool is_in_input(const device::Device& device, const Box& part);

/// Values that exist before the first step.
struct Sources {
  std::vector<HostCopy> inputs;                           ///< the inputs that are copied
  std::map<const Value*, std::vector<int64_t>> elements;  ///< of expressions
};

/// Places inputs, constants, expressions and states that change. Throws a user error if the device cannot hold a value.
Sources place_sources(const Subject& subject, const Values& values, const Uses& uses,
                      const std::map<const Value*, size_t>& slot_of, Arena& arena, Places& places,
                      KnownElements& known);

}  // namespace tessera::bind
