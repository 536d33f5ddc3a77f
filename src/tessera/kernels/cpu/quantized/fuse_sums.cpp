#include <algorithm>
#include <map>

#include "tessera/kernels/cpu/library/fusions.h"
#include "tessera/kernels/cpu/quantized/sum_of_codes.h"
#include "tessera/kernels/cpu/quantized/sums_epilogue.h"

namespace tessera::kernels {
namespace {

constexpr size_t kMostAfterSums = 8;
constexpr size_t kOwnOperands = 4;  // of a product of integers

// Whether all other operands of a follower are one number each, or a list along the product's columns or channels.
bool others_go_along(const Node& node, size_t index, const TensorDesc& sums, bool channels,
                     const Surroundings& around) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (i == index || !node.inputs[i]) continue;
    const TensorDesc other = around.type(node.inputs[i]);
    const TensorDesc alike{other.dtype, sums.dims};
    const bool along = other.count() == 1 ? other.rank() <= sums.rank()
                                          : other.dims != sums.dims && goes_with_result(other, alike, channels);
    if (!along) return false;
  }
  return true;
}

// Codes that are added to others, as at the end of a residual block, become the sum's codes before they are stored.
// Returns the last node.
const Node* add_sum_of_codes(Fusion& fusion, const Node& root, const Node& quantize, const Surroundings& around) {
  const Value& codes = *quantize.outputs[0];
  if (around.is_kept(&codes)) return &quantize;
  const std::vector<const Node*> nodes = nodes_of_sum_of_codes(codes);
  if (nodes.empty() || around.position(*nodes.back()) - around.position(root) > kMostDistance) return &quantize;
  const Dims dims = around.type(&codes).dims;
  for (const Node* node : nodes) {
    const Value* result = node->outputs[0];
    if (!around.is_free(*node) || !around.run_together(root, *node) || around.type(result).dims != dims)
      return &quantize;
    if (node != nodes.back() && around.is_kept(result)) return &quantize;
  }
  std::map<const Value*, int> made = {{&codes, ~static_cast<int>(fusion.followers.size())}};
  for (const Node* node : nodes) {
    Follower follower{node, {}};
    for (Value* operand : node->inputs) {
      auto known = made.find(operand);
      follower.operands.push_back(known != made.end() ? known->second : static_cast<int>(fusion.inputs.size()));
      if (known == made.end()) fusion.inputs.push_back(operand);
    }
    fusion.followers.push_back(std::move(follower));
    made.emplace(node->outputs[0], ~static_cast<int>(fusion.followers.size()));
  }
  return nodes.back();
}

}  // namespace

void add_followers_of_sums(Fusion& fusion, const Node& root, const Surroundings& around) {
  if (!fusion.root->domain.empty() || !(fusion.root->is("MatMulInteger") || fusion.root->is("ConvInteger"))) return;
  const Node* last = &root;
  const TensorDesc sums = around.type(last->outputs[0]);
  const bool channels = root.is("ConvInteger");
  while (sums.count() > 0 && fusion.followers.size() < kMostAfterSums) {
    const Value* value = last->outputs[0];
    if (value->uses.size() != 1 || around.is_kept(value)) break;
    const Node& node = *value->uses[0].node;
    const size_t index = value->uses[0].index;
    if (!can_follow_sums(node, index) || !around.is_free(node) || !around.run_together(root, node)) break;
    if (around.type(node.outputs[0]).dims != sums.dims || !others_go_along(node, index, sums, channels, around)) break;
    fusion.inputs.resize(std::max(fusion.inputs.size(), kOwnOperands));
    Follower follower{&node, std::vector<int>(node.inputs.size(), ~static_cast<int>(fusion.followers.size()))};
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (i == index) continue;
      follower.operands[i] = static_cast<int>(fusion.inputs.size());
      fusion.inputs.push_back(node.inputs[i]);
    }
    fusion.followers.push_back(std::move(follower));
    last = &node;
  }
  if (channels && last->is("QuantizeLinear")) last = add_sum_of_codes(fusion, root, *last, around);
  fusion.outputs = last->outputs;
}

}  // namespace tessera::kernels
