#include <fmt/ranges.h>

#include "tessera/bind/frame.h"

namespace tessera::bind {

// A step whose operand 1 is a weight that the device packs reads the packed form, by another operator. So does one
// whose operand is a view of a weight, if its elements lie there one after the other.
void Binding::pack_weights() {
  for (size_t step = 0; step < frame_->groups.size(); ++step) {
    NodeGroup& group = frame_->groups[step];
    if (!group.packed) continue;
    const Value *operand = group.root->input(1), *weight = operand;
    const Alias* view = kernels::is_weight(operand) ? nullptr : view_of(operand);
    if (view) weight = view->base;
    if (!kernels::is_weight(weight) || (view && !view->strides.empty())) {
      group.packed.reset();
      continue;
    }
    const kernels::PackedLayout& layout = *group.packed;
    Node pack;
    pack.op_type = "PackWeight";
    pack.domain = layout.domain;
    pack.attributes = layout.pack_attributes;
    pack.name = "pack " + weight->name;
    pack.inputs = {group.root->inputs[1]};
    std::string key = layout.key;
    if (view) {
      const Dims dims = desc(operand).dims;
      pack.set("shape", dims);
      pack.set("begin", view->offset);
      key += fmt::format(";{} from {}", fmt::join(dims, ","), view->offset);
    }
    for (const size_t index : layout.beside) {
      pack.inputs.push_back(group.root->input(index));
      if (pack.inputs.back()) key += ";" + pack.inputs.back()->name;
    }
    std::vector<const Value*> spared;
    for (const size_t index : layout.spared) spared.push_back(group.root->input(index));
    const Tensor& packed = rank_->packed(weight, key, pack, layout.bytes, spared);
    Node node = *group.root;
    node.op_type = layout.op_type;
    node.domain = layout.domain;
    for (const Attribute& attribute : layout.use_attributes) node.set(attribute.name, attribute.value);
    const Location place{Where::fixed, 0, packed.data, 0};
    frame_->packed.emplace(static_cast<int>(step), PackedWeight{std::move(node), {packed.dtype, packed.dims}, place});
  }
}

// The packed form that operand `index` of the step has; null: none.
const Binding::PackedWeight* Binding::packed_operand(int step, size_t index) const {
  if (index != 1) return nullptr;
  auto packed = frame_->packed.find(step);
  return packed == frame_->packed.end() ? nullptr : &packed->second;
}

}  // namespace tessera::bind
