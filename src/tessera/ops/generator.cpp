#include "tessera/ops/registry.h"

namespace tessera::ops {

std::vector<OpDef> generator_ops() { return {}; }

}  // namespace tessera::ops
