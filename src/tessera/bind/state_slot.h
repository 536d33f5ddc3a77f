#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/device/device.h"
#include "tessera/ir/tensor.h"

namespace tessera::bind {

/// One rank's shard of a state that changes from step to step.
struct StateSlot {
  std::string name;    ///< the state's id
  std::string layout;  ///< how the whole state is divided among ranks, in words
  DType dtype = DType::undefined;
  Dims dims;
  size_t bytes = 0;
  device::Memory current;  ///< dense; null in a dry run
  /// A step computes the next value here while the current one is still read; then the two are exchanged. Null until a
  /// machine program needs it.
  device::Memory spare;
  bool has_spare = false;                         ///< whether `spare` counts, also in a dry run
  std::vector<std::shared_ptr<const void>> held;  ///< counts its memory in the process' limit
};

}  // namespace tessera::bind
