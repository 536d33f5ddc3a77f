#include "tessera/passes/pipeline.h"

#include "tessera/passes/hierarchical.h"

namespace tessera::passes {

const std::vector<Pass>& passes() {
  static const std::vector<Pass> all = {
      {"hierarchical", hierarchical},
  };
  return all;
}

}  // namespace tessera::passes
