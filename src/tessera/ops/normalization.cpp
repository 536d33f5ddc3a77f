#include "tessera/ops/registry.h"

namespace tessera::ops {

std::vector<OpDef> normalization_ops() { return {}; }

}  // namespace tessera::ops
