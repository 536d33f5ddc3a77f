#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/cost/prices.h"
#include "tessera/mesh/topology.h"
#include "tessera/passes/block_ring.h"
#include "tessera/passes/recompute.h"
#include "tessera/passes/ring_attention.h"
#include "tessera/spmd/program.h"

namespace tessera::schedule {
class CellOrder;
}

/// Rewrites of a Program that change how ranks communicate and when they compute, but not what they compute.
namespace tessera::passes {

/// A collective that is to go around a ring (collective_products.h).
struct RingChoice {
  size_t at = 0;  ///< its number among the graph's nodes
  RingForm form;
};

struct Context {
  const Topology& topology;         ///< of the program's mesh; empty if unknown
  std::vector<std::string>& notes;  ///< receives a line about each change
  Recompute recompute = {};
  std::optional<int64_t> bucket_bytes = {};  ///< of collectives that start as one (buckets.h); 0: each starts alone
  RingAttention ring_attention = RingAttention::by_cost;
  const cost::Prices* prices = nullptr;  ///< of the machine by whose seconds passes choose; null: none is named
  /// Chooses the collectives that go around rings beside products; null: none does.
  std::function<std::vector<RingChoice>(const spmd::Program&)> choose_rings = {};
  const schedule::CellOrder* cells = nullptr;  ///< of a pipeline's table (stage_order.h); null: there are no stages
  bool early_starts = true;                    ///< gathers of stored parameters may come forward (early_starts.h)
  int64_t visited = 0;  ///< receives the number of values that recomputation visited for its choice
};

struct Pass {
  std::string_view name;
  void (*run)(spmd::Program&, Context&);
};

/// All passes, in order.
const std::vector<Pass>& passes();

}  // namespace tessera::passes
