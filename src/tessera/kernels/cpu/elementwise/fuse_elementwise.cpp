#include <algorithm>
#include <set>

#include "tessera/kernels/cpu/elementwise/group.h"
#include "tessera/kernels/cpu/library/fusions.h"
#include "tessera/kernels/library.h"
#include "tessera/kernels/view.h"

namespace tessera::kernels {
namespace {

constexpr size_t kMostElementwise = 24;  // nodes

using Members = std::vector<const Node*>;

bool is_among(const Members& members, const Node* node) {
  return std::find(members.begin(), members.end(), node) != members.end();
}

// The results that somebody reads beside the members, and the last one's.
std::vector<Value*> stored_results(const Members& members, const Surroundings& around) {
  std::vector<Value*> stored(members.size(), nullptr);
  for (size_t m = 0; m < members.size(); ++m) {
    Value* result = members[m]->outputs[0];
    const bool is_inside = std::all_of(result->uses.begin(), result->uses.end(),
                                       [&](const Use& use) { return is_among(members, use.node); });
    if (m + 1 == members.size() || !is_inside || around.is_kept(result))
      stored[result_of_member(m, members.size())] = result;
  }
  while (!stored.back()) stored.pop_back();
  return stored;
}

Fusion fusion_of(Members members, const Surroundings& around) {
  std::sort(members.begin(), members.end(),
            [&](const Node* a, const Node* b) { return around.position(*a) < around.position(*b); });
  Fusion fusion = alone(*members.front(), around);
  for (size_t m = 1; m < members.size(); ++m) {
    Follower follower{members[m], {}};
    for (Value* operand : members[m]->inputs) {
      auto member = std::find(members.begin(), members.end(), operand ? operand->producer : nullptr);
      auto known = std::find(fusion.inputs.begin(), fusion.inputs.end(), operand);
      if (member != members.end()) {
        follower.operands.push_back(~static_cast<int>(member - members.begin()));
        continue;
      }
      follower.operands.push_back(static_cast<int>(known - fusion.inputs.begin()));
      if (known == fusion.inputs.end()) fusion.inputs.push_back(operand);
    }
    fusion.followers.push_back(std::move(follower));
  }
  fusion.outputs = stored_results(members, around);
  return fusion;
}

bool goes_together(const Fusion& fusion, const Dims& dims, const Surroundings& around) {
  std::vector<TensorDesc> operands;
  for (const Value* operand : fusion.inputs) operands.push_back(operand ? around.type(operand) : TensorDesc{});
  return has_long_rows(*fusion.root, dims, operands);
}

}  // namespace

Fusion fuse_elementwise(const Node& last, const Surroundings& around) {
  const Fusion single{&last, {}, last.inputs, last.outputs};
  if (!can_group(last)) return single;
  Members members{&last};
  const Dims dims = around.type(last.outputs[0]).dims;
  const size_t end = around.position(last);
  const auto may_join = [&](const Value* operand) {
    const Node* node = operand ? operand->producer : nullptr;
    if (!node || !around.is_free(*node) || is_among(members, node) || !can_group(*node)) return false;
    if (!around.run_together(*node, last)) return false;
    if (end - around.position(*node) > kMostDistance) return false;
    return around.type(operand).dims == dims &&
           std::all_of(operand->uses.begin(), operand->uses.end(),
                       [&](const Use& use) { return is_among(members, use.node) || around.position(*use.node) > end; });
  };
  std::set<const Node*> refused;
  for (size_t m = 0; m < members.size(); ++m)
    for (const Value* operand : members[m]->inputs) {
      if (members.size() == kMostElementwise || !may_join(operand) || refused.contains(operand->producer)) continue;
      members.push_back(operand->producer);
      if (goes_together(fusion_of(members, around), dims, around)) continue;
      refused.insert(operand->producer);
      members.pop_back();
    }
  return members.size() == 1 ? single : fusion_of(members, around);
}

bool elementwise_takes_view(const Fusion& fusion, const View& view, const TypeOf& type) {
  int64_t stride = 1;  // of the innermost dimension so far
  for (size_t d = 0; d < view.dims.size(); ++d)
    if (view.dims[d] != 1) stride = view.strides[d];
  const Value* result = fusion.outputs[0];
  return stride == 1 && has_long_rows(*fusion.root, type(result).dims, {{result->dtype(), view.dims, 0, view.strides}});
}

}  // namespace tessera::kernels
