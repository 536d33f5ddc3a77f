#include "tessera/kernels/registry.h"

namespace tessera::kernels {

std::vector<KernelEntry> attention_kernels() { return {}; }

}  // namespace tessera::kernels
