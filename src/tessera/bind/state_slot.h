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
  std::string layout;  ///< a description of how the whole state is cut among ranks
  DType dtype = DType::undefined;
  Dims dims;
  size_t bytes = 0;
  device::Memory current;  ///< dense; null where nothing will run
  /// A step computes the next value here while the current one is still read; then the two change places. Null until a
  /// machine program needs it.
  device::Memory spare;
  bool has_spare = false;                         ///< whether `spare` counts, also where nothing will run
  std::vector<std::shared_ptr<const void>> held;  ///< its memory in the process' limit
};

}  // namespace tessera::bind
