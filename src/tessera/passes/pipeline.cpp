#include "tessera/passes/pipeline.h"

#include "tessera/passes/buckets.h"
#include "tessera/passes/collective_products.h"
#include "tessera/passes/early_starts.h"
#include "tessera/passes/hierarchical.h"
#include "tessera/passes/init.h"
#include "tessera/passes/move_again.h"
#include "tessera/passes/order.h"
#include "tessera/passes/stage_order.h"

namespace tessera::passes {

const std::vector<Pass>& passes() {
  static const std::vector<Pass> all = {
      {"ring_attention", ring_attention},
      {"collective_products", collective_products},
      {"hierarchical", hierarchical},
      {"init", init},
      {"stage_order", stage_order},
      {"recompute", recompute},
      {"move_again", move_again},
      {"order", order},
      {"buckets", buckets},
      {"early_starts", early_starts},
  };
  return all;
}

}  // namespace tessera::passes
