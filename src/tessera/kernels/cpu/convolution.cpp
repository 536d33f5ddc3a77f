#include "tessera/kernels/registry.h"

namespace tessera::kernels {

std::vector<KernelEntry> convolution_kernels() { return {}; }

}  // namespace tessera::kernels
