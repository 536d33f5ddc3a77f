#pragma once

#include <limits>
#include <string>

#include "tessera/cost/machine_model.h"

namespace tessera::random {

/// A machine on which random programs take a few microseconds in kernels, and as long on links of that relative speed.
inline MachineModel machine_of(const std::string& device, double speed = 1) {
  MachineModel machine;
  machine.device = device;
  machine.kernel = 1e-6;
  machine.products[DType::float32] = {1e9, {0, 0, 0}};
  machine.bandwidths = {{std::numeric_limits<double>::infinity(), 1e9}};
  machine.links = {{"near", 0, 1e-6 / speed, 1e9 * speed}};
  return machine;
}

}  // namespace tessera::random
