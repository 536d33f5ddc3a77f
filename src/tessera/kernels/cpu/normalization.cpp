#include "tessera/kernels/registry.h"

namespace tessera::kernels {

std::vector<KernelEntry> normalization_kernels() { return {}; }

}  // namespace tessera::kernels
