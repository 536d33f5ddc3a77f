#include "tessera/bind/frame.h"

namespace tessera::bind {

// A group whose operand 1 is a weight that the device packs reads the packed form, by another operator. Returns the
// node that runs instead of the root; its operands are named as the root's.
std::optional<Node> Binding::pack_operand(const NodeGroup& group, Step& made, kernels::PrepareContext& context) {
  if (!group.packed) return std::nullopt;
  const kernels::PackedLayout& layout = *group.packed;
  const Value* weight = group.root->input(1);
  Node pack;
  pack.op_type = "PackWeight";
  pack.domain = layout.domain;
  pack.attributes = layout.pack_attributes;
  pack.name = "pack " + weight->name;
  const Tensor& packed = rank_->packed(weight, layout.key, pack, layout.bytes);
  context.inputs[1] = {packed.dtype, packed.dims};
  made.inputs[1] = {Where::fixed, 0, packed.data, 0};
  Node node = *group.root;
  node.op_type = layout.op_type;
  node.domain = layout.domain;
  for (const Attribute& attribute : layout.use_attributes) node.set(attribute.name, attribute.value);
  return node;
}

}  // namespace tessera::bind
