#include "tessera/kernels/registry.h"

namespace tessera::kernels {

std::vector<KernelEntry> elementwise_kernels() { return {}; }

}  // namespace tessera::kernels
