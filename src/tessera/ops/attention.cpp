#include "tessera/ops/registry.h"

namespace tessera::ops {

std::vector<OpDef> attention_ops() { return {}; }

}  // namespace tessera::ops
