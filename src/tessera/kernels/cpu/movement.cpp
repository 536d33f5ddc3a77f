#include "tessera/kernels/registry.h"

namespace tessera::kernels {

std::vector<KernelEntry> movement_kernels() { return {}; }

}  // namespace tessera::kernels
