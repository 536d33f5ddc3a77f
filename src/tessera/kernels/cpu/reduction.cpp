#include "tessera/kernels/registry.h"

namespace tessera::kernels {

std::vector<KernelEntry> reduction_kernels() { return {}; }

}  // namespace tessera::kernels
