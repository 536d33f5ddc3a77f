#include "tessera/ops/registry.h"

namespace tessera::ops {

std::vector<OpDef> elementwise_ops() { return {}; }

}  // namespace tessera::ops
