#include "tessera/ops/registry.h"

namespace tessera::ops {

std::vector<OpDef> shape_ops() { return {}; }

}  // namespace tessera::ops
