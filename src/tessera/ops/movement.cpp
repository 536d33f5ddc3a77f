#include "tessera/ops/registry.h"

namespace tessera::ops {

std::vector<OpDef> movement_ops() { return {}; }

}  // namespace tessera::ops
