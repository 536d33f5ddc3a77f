#include "tessera/spmd/decide/sources.h"

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera::spmd {
namespace {

// What two shardings of one value have in common: per part the common prefix of axes; whole where parts do not line up;
// everywhere along axes of which they name different indices.
Sharding meet(const Sharding& a, const Sharding& b) {
  Sharding result = a;
  for (size_t d = 0; d < a.dims.size(); ++d) {
    auto cuts = boundaries(a.dims[d]);
    for (const Expr& cut : boundaries(b.dims[d])) cuts.push_back(cut);
    auto x = refine(a.dims[d], cuts), y = refine(b.dims[d], cuts);
    auto same_size = [](const Part& p, const Part& q) { return p.size == q.size; };
    if (!x || !y || !std::equal(x->parts.begin(), x->parts.end(), y->parts.begin(), y->parts.end(), same_size)) {
      result.dims[d].parts = {Part{a.dims[d].size(), {}}};
      continue;
    }
    for (size_t p = 0; p < x->parts.size(); ++p) {
      auto& axes = x->parts[p].axes;
      const auto& other = y->parts[p].axes;
      size_t n = 0;
      while (n < axes.size() && n < other.size() && axes[n] == other[n]) ++n;
      axes.resize(n);
    }
    result.dims[d].parts = std::move(x->parts);
  }
  std::erase_if(result.at,
                [&](const PlacedAxis& place) { return std::find(b.at.begin(), b.at.end(), place) == b.at.end(); });
  return result;
}

}  // namespace

std::map<const Value*, Sharding> stored_sources(const Graph& graph, const Layout& layout,
                                                const std::map<const Value*, std::vector<Sharding>>& wants,
                                                const Storage& storage, const Mesh& mesh) {
  std::map<const Value*, Sharding> sources;
  for (const auto& value : graph.values())  // what nothing reads
    if (value->next || (value->changing && value->origin)) sources[value.get()] = Sharding::replicated(value->shape());
  for (const auto& [value, slots] : layout.of_value) {
    if (value->producer) continue;
    bool annotated = layout.slots[slots.front()].annotated;
    auto wanted = wants.find(value);
    if (!annotated && wanted == wants.end()) {
      sources[value] = Sharding::replicated(value->shape());
      continue;
    }
    // Annotated: the layout that all uses got, including axes that an open dimension attracted. Else what all uses
    // want.
    Sharding stored = annotated ? layout.slots[slots.front()].sharding() : wanted->second.front();
    if (annotated) {
      // A closed dimension is as annotated, even if uses of other parts put the axis elsewhere.
      const Sharding ordered = stored;
      for (int slot : slots) stored = meet(stored, layout.slots[slot].sharding());
      for (size_t d = 0; d < stored.dims.size(); ++d)
        if (!layout.slots[slots.front()].dims[d].open) stored.dims[d] = ordered.dims[d];
    } else {
      for (const Sharding& other : wanted->second) stored = meet(stored, other);
    }
    if (value->kind == ValueKind::input) stored.at.clear();  // the caller gives it to all
    if (value->next && value->next->producer) stored.at = layout.of(value->next->producer).at;
    sources[value] = stored;
  }
  for (const auto& [state, sharding] : storage) {
    auto found = sources.find(state);
    if (found == sources.end()) continue;
    const std::vector<PlacedAxis> at = sharding.at.empty() ? std::move(found->second.at) : sharding.at;
    found->second = sharding;
    found->second.at.clear();
    const std::vector<AxisRef> split = found->second.axes();
    found->second.at = at;
    for (const AxisRef& axis : split)
      if (overlaps(at, axis))
        fail("store", "'{}' is placed at one index of the axis '{}', so it cannot be stored split over it", state->name,
             axis.str(mesh));
  }
  return sources;
}

}  // namespace tessera::spmd
