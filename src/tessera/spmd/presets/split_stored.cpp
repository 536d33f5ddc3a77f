#include "tessera/spmd/presets/split_stored.h"

#include <algorithm>
#include <optional>

namespace tessera::spmd {
namespace {

// The dimension of a movement's operand that consists of exactly the parts of a dimension of its result; nullopt if
// there is none.
std::optional<int> dim_before(const Layout& layout, const NodeLayout& movement, int dim) {
  std::optional<int> before;
  size_t parts = 0;
  for (const SubFactor& sub : movement.subfactors) {
    const auto in = [&](bool result) {
      return std::find_if(sub.places.begin(), sub.places.end(),
                          [&](const Place& place) { return place.result == result && place.tensor == 0; });
    };
    const auto from = in(false), to = in(true);
    if (to == sub.places.end() || to->dim != dim) continue;
    if (from == sub.places.end() || from->part != to->part || before.value_or(from->dim) != from->dim)
      return std::nullopt;
    before = from->dim;
    ++parts;
  }
  if (before && layout.slots[movement.operand_slots[0]].dims[*before].parts.size() != parts) return std::nullopt;
  return before;
}

}  // namespace

const Value* weight_of(const Value* value) {
  while (value && value->producer && ops::moves_of(*value->producer) >= ops::Moves::all)
    value = value->producer->input(0);
  return value && value->kind == ValueKind::state ? value : nullptr;
}

void split_where_stored(PresetContext& context, const Value* weight, int dim) {
  while (weight->producer) {
    const std::optional<int> before = dim_before(context.layout, context.layout.of(weight->producer), dim);
    if (!before) break;
    weight = weight->producer->inputs[0];
    dim = *before;
  }
  Sharding sharding = Sharding::replicated(weight->shape());
  for (DimSharding& each : sharding.dims) each.open = true;
  sharding.dims[dim].parts[0].axes = {context.axis};
  context.annotate(weight, std::move(sharding));
}

}  // namespace tessera::spmd
