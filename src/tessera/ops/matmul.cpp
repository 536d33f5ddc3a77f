#include "tessera/ops/registry.h"

namespace tessera::ops {

std::vector<OpDef> matmul_ops() { return {}; }

}  // namespace tessera::ops
