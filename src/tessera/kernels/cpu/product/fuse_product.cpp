#include <algorithm>

#include "tessera/kernels/cpu/elementwise/followers.h"
#include "tessera/kernels/cpu/library/fusions.h"
#include "tessera/kernels/cpu/library/onednn.h"

namespace tessera::kernels {
namespace {

constexpr size_t kMostFollowers = 4;

// Whether the value is a weight, or may be a part of one, or one in another shape, that nothing else reads: of a weight
// of codes, whose products are much slower with the plain form.
bool may_be_packed(const Node& node, const Value* value) {
  const bool integers = node.is("MatMulInteger") && node.domain.empty();
  while (value && !is_weight(value)) {
    const Node* maker = value->producer;
    const bool passes = integers && maker && maker->domain.empty() && value->uses.size() == 1 &&
                        (maker->is("Reshape") || maker->is("Squeeze") || maker->is("Slice"));
    value = passes ? maker->input(0) : nullptr;
  }
  return value;
}

std::optional<PackedLayout> packed_weight(const Node& node, const Surroundings& around) {
  return may_be_packed(node, node.input(1)) ? packed_layout(node, around.type(node.input(1))) : std::nullopt;
}

// Whether oneDNN's kernels of the type can end with followers.
bool has_epilogues(DType dtype) {
  return (dtype == DType::float32 || dtype == DType::bfloat16) && onednn::is_native(dtype);
}

bool can_be_followed(const Node& node) {
  if (!node.domain.empty() || node.outputs.size() != 1 || !is_weight(node.input(1))) return false;
  if (!has_epilogues(node.outputs[0]->dtype())) return false;
  if (node.is("Conv")) return node.outputs[0]->rank() >= 3;
  if (node.is("Gemm") && (node.input(2) || node.get_float("alpha", 1) != 1)) return false;
  return (node.is("Gemm") || node.is("MatMul")) && node.inputs[0]->rank() >= 2 && node.inputs[1]->rank() == 2;
}

// Whether a message brings the value: a product that adds it would wait for the message before it computes anything.
bool is_received(const Value* value) {
  return value->producer && value->producer->is("Recv", "tessera.comm");
}

}  // namespace

Fusion alone(const Node& node, const Surroundings& around) {
  Fusion fusion{&node, {}, node.inputs, node.outputs, nullptr, packed_weight(node, around), {}};
  if (fusion.packed)
    for (const size_t operand : fusion.packed->spared) fusion.inputs[operand] = nullptr;
  return fusion;
}

Fusion with_stored_weight(const Node& node, const Surroundings& around) {
  Fusion fusion = alone(node, around);
  const bool integers = node.is("MatMulInteger") && node.domain.empty();
  if (!(node.is("MatMul") || integers) || !node.input(1)) return fusion;
  const Node* transpose = node.input(1)->producer;
  if (!transpose || !transpose->is("Transpose") || !is_weight(transpose->input(0))) return fusion;
  if (transpose->get_ints("perm", {1, 0}) != std::vector<int64_t>{1, 0} || transpose->input(0)->rank() != 2)
    return fusion;
  if (!around.is_free(*transpose)) return fusion;
  auto own = std::make_shared<Node>(node);
  own->inputs[1] = transpose->inputs[0];
  own->set("transB", int64_t{1});
  auto packed = packed_weight(*own, around);
  if (!packed) return fusion;
  fusion.packed = std::move(packed);
  fusion.spared = {transpose};
  fusion.inputs = own->inputs;
  fusion.root = own.get();
  fusion.own = std::move(own);
  return fusion;
}

bool goes_with_result(const TensorDesc& operand, const TensorDesc& result, bool channels) {
  if (operand.dtype != result.dtype) return false;
  if (operand.dims == result.dims) return true;
  const size_t axis = channels ? 1 : result.dims.size() - 1;
  const size_t offset = result.dims.size() - operand.dims.size();  // aligned at the right
  if (operand.dims.size() > result.dims.size() || axis < offset || operand.count() != result.dims[axis]) return false;
  return operand.dims[axis - offset] == result.dims[axis];
}

void add_followers(Fusion& fusion, const Node& root, const Surroundings& around) {
  if (!can_be_followed(*fusion.root)) return;
  const TensorDesc type = around.type(root.outputs[0]);
  const bool convolves = root.is("Conv");
  const Node* last = &root;
  while (type.count() > 0 && fusion.followers.size() < kMostFollowers) {
    const Value* value = last->outputs[0];
    if (value->uses.size() != 1 || around.is_kept(value)) break;
    const Node& node = *value->uses[0].node;
    if (!can_follow(node) || !around.is_free(node) || !around.run_together(root, node)) break;
    const TensorDesc result = around.type(node.outputs[0]);
    if (result.dtype != type.dtype || result.dims != type.dims) break;
    Follower follower{&node, std::vector<int>(node.inputs.size(), ~static_cast<int>(fusion.followers.size()))};
    if (takes_operand(node)) {
      Value* other = node.inputs[1 - value->uses[0].index];
      const TensorDesc operand = around.type(other);
      if (!goes_with_result(operand, type, convolves) || is_received(other)) break;
      // A convolution can add another tensor only as the previous content of its result's memory.
      const bool held = node.is("Add") && fusion.followers.empty();
      if (convolves && operand.dims == type.dims && !held) break;
      if (convolves) fusion.inputs.resize(std::max<size_t>(fusion.inputs.size(), 3));  // the bias's place
      follower.operands[1 - value->uses[0].index] = static_cast<int>(fusion.inputs.size());
      fusion.inputs.push_back(other);
    }
    fusion.followers.push_back(std::move(follower));
    last = &node;
  }
  fusion.outputs = last->outputs;
}

}  // namespace tessera::kernels
