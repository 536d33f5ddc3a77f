#include "tessera/bind/packing.h"

#include <fmt/ranges.h>

namespace tessera::bind {

PackedWeights::PackedWeights(Rank& rank, const std::vector<NodeGroup>& groups, const Values& values) {
  for (size_t step = 0; step < groups.size(); ++step) {
    const NodeGroup& group = groups[step];
    if (!group.packed) continue;
    const Value *operand = group.root->input(1), *weight = operand;
    const Alias* view = kernels::is_weight(operand) ? nullptr : values.view_of(operand);
    if (view) weight = view->base;
    if (!kernels::is_weight(weight) || (view && !view->strides.empty())) continue;
    const kernels::PackedLayout& layout = *group.packed;
    WeightToPack wanted{.weight = weight, .layout = layout, .dims = values.type(operand).dims, .key = layout.key};
    if (view) {
      wanted.begin = view->offset;
      wanted.key += fmt::format(";{} from {}", fmt::join(wanted.dims, ","), view->offset);
    }
    for (const size_t index : layout.beside) {
      wanted.beside.push_back(group.root->input(index));
      if (wanted.beside.back()) wanted.key += ";" + wanted.beside.back()->name;
    }
    for (const size_t index : layout.spared) wanted.spared.push_back(group.root->input(index));
    const Tensor& packed = rank.packed(wanted);
    Node node = *group.root;
    node.op_type = layout.op_type;
    node.domain = layout.domain;
    for (const Attribute& attribute : layout.use_attributes) node.set(attribute.name, attribute.value);
    const Location place{Location::Where::fixed, 0, packed.data, 0};
    by_step_.emplace(static_cast<int>(step), PackedWeight{std::move(node), {packed.dtype, packed.dims}, place});
  }
}

const PackedWeight* PackedWeights::find(int step, size_t index) const {
  if (index != 1) return nullptr;
  auto packed = by_step_.find(step);
  return packed == by_step_.end() ? nullptr : &packed->second;
}

const Node* PackedWeights::node_of(int step) const {
  auto packed = by_step_.find(step);
  return packed == by_step_.end() ? nullptr : &packed->second.node;
}

}  // namespace tessera::bind
