#include "tessera/ops/registry.h"

namespace tessera::ops {

std::vector<OpDef> reduction_ops() { return {}; }

}  // namespace tessera::ops
