#include "tessera/ops/registry.h"

namespace tessera::ops {

std::vector<OpDef> convolution_ops() { return {}; }

}  // namespace tessera::ops
