#include "tessera/ops/registry.h"

namespace tessera::ops {

std::vector<OpDef> indexing_ops() { return {}; }

}  // namespace tessera::ops
