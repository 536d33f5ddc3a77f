#include <algorithm>

#include "tessera/kernels/cpu/library/fusions.h"

namespace tessera::kernels {
namespace {

// Whether all elements are known to be +0.
bool is_zero(const Value* value) {
  const Node* maker = value->producer;
  if (!maker || !maker->is("Expand") || !maker->domain.empty()) return false;
  const Value* element = maker->input(0);
  if (!element->is_fixed() || !is_float(element->dtype()) || element->data.count() != 1) return false;
  const std::byte* bytes = element->data.data;
  return std::all_of(bytes, bytes + element->data.bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

// Whether the node adds elements to a tensor of zeros at some places.
bool scatters_into_zeros(const Node& node) {
  const std::string_view op = node.op_type;
  const bool scatters = node.domain.empty() ? op == "ScatterND" || op == "ScatterElements"
                                            : op == "ScatterNDShard" || op == "ScatterElementsShard";
  return scatters && node.get_string("reduction", "none") == "add" && is_zero(node.input(0));
}

// Whether the addend is scattered into zeros for this sum alone.
bool scatters_alone(const Node& sum, size_t addend, const Surroundings& around) {
  const Value *scattered = sum.inputs[addend], *other = sum.inputs[1 - addend];
  if (!scattered->producer || scattered->uses.size() != 1 || around.is_kept(scattered)) return false;
  if (!around.run_together(sum, *scattered->producer)) return false;
  return scatters_into_zeros(*scattered->producer) && around.type(other).dims == around.type(scattered).dims;
}

}  // namespace

std::optional<Fusion> fuse_scatter(const Node& sum, const Surroundings& around) {
  if (!sum.is("Add") || !sum.domain.empty()) return std::nullopt;
  for (const size_t addend : {0, 1}) {
    if (!scatters_alone(sum, addend, around)) continue;
    const Node* scatter = sum.inputs[addend]->producer;
    auto own = std::make_shared<Node>(*scatter);
    own->inputs[0] = sum.inputs[1 - addend];
    own->outputs = sum.outputs;
    Fusion fusion = alone(*own, around);
    fusion.own = std::move(own);
    fusion.spared = {scatter, scatter->input(0)->producer};
    return fusion;
  }
  return std::nullopt;
}

}  // namespace tessera::kernels
