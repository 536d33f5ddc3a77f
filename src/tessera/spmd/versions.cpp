#include "tessera/spmd/versions.h"

namespace tessera::spmd {

std::optional<Route> cheapest_route(const std::vector<Sharding>& layouts, const Sharding& wanted, DType dtype,
                                    const Mesh& mesh, const Hints& hints) {
  std::optional<Route> best;
  for (size_t v = 0; v < layouts.size(); ++v) {
    if (same_layout(layouts[v], wanted)) return Route{v, {}, 0};
    if (!layouts[v].is_partial() && wanted.is_partial()) continue;
    Route route{v, plan_reshard(layouts[v], wanted), 0};
    for (const ReshardStep& step : route.steps) route.bytes += hinted(bytes_received(step, dtype, mesh), hints);
    if (!best || route.bytes < best->bytes) best = std::move(route);
  }
  return best;
}

}  // namespace tessera::spmd
