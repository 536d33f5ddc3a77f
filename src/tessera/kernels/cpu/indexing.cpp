#include "tessera/kernels/registry.h"

namespace tessera::kernels {

std::vector<KernelEntry> indexing_kernels() { return {}; }

}  // namespace tessera::kernels
