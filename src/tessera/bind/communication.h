#pragma once

#include "tessera/device/device.h"

namespace tessera::bind {

/// A communication node of domain tessera.comm, bound to a rank and to extents. From start() until the end of wait(),
/// which gets the same buffers, operands must not change, and results must be neither read nor written.
class Communication {
 public:
  virtual ~Communication() = default;
  virtual size_t scratch_bytes() const = 0;
  /// Enqueues its start.
  virtual void start(device::Queue& queue, const kernels::KernelArgs& args) = 0;
  /// Lets it make progress if the communicator leaves that to its callers (Communicator::test).
  virtual void advance() = 0;
  /// Enqueues its end.
  virtual void wait(device::Queue& queue, const kernels::KernelArgs& args) = 0;
};

}  // namespace tessera::bind
