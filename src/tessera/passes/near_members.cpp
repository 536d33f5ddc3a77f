#include "tessera/passes/near_members.h"

#include "tessera/spmd/collective_attributes.h"

namespace tessera::passes {

std::optional<GroupUnits> units_of(const std::vector<AxisRef>& axes, int64_t units, const Expr& size) {
  if (units == 0) return GroupUnits{axes, {}};
  GroupUnits split;
  int64_t rest = units;  // digits that are not found yet
  for (const AxisRef& axis : axes) {
    if (rest == 1) {
      split.near.push_back(axis);
    } else if (rest % axis.size == 0) {
      split.far.push_back(axis);
      rest /= axis.size;
    } else if (axis.size % rest == 0 && Expr::exact_divide(size, ranks_of(axes))) {
      split.far.push_back({axis.axis, axis.pre, rest});
      split.near.push_back({axis.axis, axis.pre * rest, axis.size / rest});
      rest = 1;
    } else {
      return std::nullopt;
    }
  }
  return rest == 1 ? std::optional(std::move(split)) : std::nullopt;
}

GroupUnits units_or_members(const std::vector<AxisRef>& axes, const RingForm& form, const Expr& size) {
  auto units = units_of(axes, form.pieces == 1 ? form.units : 0, size);
  return units ? std::move(*units) : GroupUnits{axes, {}};
}

Value* NearMembers::gathered(Value* shard, size_t dim, const Expr& extent, const Node* before) const {
  return moved(Collective::all_gather, shard, dim, extent, before);
}

Value* NearMembers::summed(Value* block, size_t dim, const Expr& extent, const Node* before) const {
  return moved(Collective::reduce_scatter, block, dim, extent, before);
}

Value* NearMembers::moved(Collective kind, Value* value, size_t dim, const Expr& extent, const Node* before) const {
  if (near_.empty()) return value;
  Node* node = program_.graph->add_node(traits_of(kind).op, {value}, {value_ + ".near"}, spmd::kCommDomain, before);
  spmd::CollectiveAttributes all{.kind = kind, .value = value_, .dim = static_cast<int64_t>(dim)};
  for (const AxisRef& axis : near_) all.axes.push_back(axis.str(program_.mesh));
  node->attributes = spmd::written(all);
  Shape shape = value->shape();
  shape[dim] = extent;
  node->outputs[0]->type = {value->dtype(), std::move(shape)};
  return node->outputs[0];
}

}  // namespace tessera::passes
