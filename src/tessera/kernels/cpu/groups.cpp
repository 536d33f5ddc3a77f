#include "tessera/kernels/groups.h"

#include <algorithm>
#include <set>

#include "tessera/kernels/cpu/channel_blocks.h"
#include "tessera/kernels/cpu/followers.h"

namespace tessera::kernels {
namespace {

constexpr size_t kMostFollowers = 4;

bool is_native_float(DType dtype) {
  return (dtype == DType::float32 || dtype == DType::bfloat16) && onednn::is_native(dtype);
}

std::optional<PackedLayout> packed_weight(const Node& node, const DescOf& desc_of) {
  return is_weight(node.input(1)) ? packed_layout(node, desc_of(node.input(1))) : std::nullopt;
}

NodeGroup single(const Node& node, const DescOf& desc_of) {
  return {&node, {}, node.inputs, node.outputs, nullptr, packed_weight(node, desc_of)};
}

class Grouper {
 public:
  Grouper(const Graph& graph, const DescOf& desc_of)
      : graph_(graph), desc_of_(desc_of), kept_(graph.outputs.begin(), graph.outputs.end()) {
    for (const auto& value : graph.values())
      if (value->next) kept_.insert(value->next);
  }

  Grouping run() {
    std::map<const Node*, NodeGroup> at;  // by the node in whose place they run
    for (const auto& node : graph_.nodes()) {
      if (taken_.contains(node.get())) continue;
      NodeGroup group = rooted_at(*node);
      const Node* place = node.get();
      if (is_root(group)) place = add_followers(group, *node);
      at.emplace(place, std::move(group));
    }
    Grouping grouping;
    for (const auto& node : graph_.nodes()) {
      auto group = at.find(node.get());
      if (group != at.end() && !is_spare(*node)) grouping.groups.push_back(std::move(group->second));
    }
    grouping.blocked = assign_blocks(grouping.groups, kept_, desc_of_);
    return grouping;
  }

 private:
  // A product with the transpose of a weight reads the weight itself, if it can be packed as it lies.
  NodeGroup rooted_at(const Node& node) {
    NodeGroup group = single(node, desc_of_);
    if (!node.is("MatMul") || !node.input(1)) return group;
    const Node* transpose = node.input(1)->producer;
    if (!transpose || !transpose->is("Transpose") || !is_weight(transpose->input(0))) return group;
    if (transpose->get_ints("perm", {1, 0}) != std::vector<int64_t>{1, 0} || transpose->input(0)->rank() != 2)
      return group;
    auto own = std::make_shared<Node>(node);
    own->inputs[1] = transpose->inputs[0];
    own->set("transB", int64_t{1});
    auto packed = packed_weight(*own, desc_of_);
    if (!packed) return group;
    group.packed = std::move(packed);
    ++spared_[transpose];
    group.inputs = own->inputs;
    group.root = own.get();
    group.own = std::move(own);
    return group;
  }

  // A Transpose that every reader does without.
  bool is_spare(const Node& node) const {
    auto spared = spared_.find(&node);
    return spared != spared_.end() && spared->second == node.outputs[0]->uses.size() &&
           !kept_.contains(node.outputs[0]);
  }

  bool is_root(const NodeGroup& group) const {
    const Node& node = *group.root;
    if (!node.domain.empty() || node.outputs.size() != 1 || !is_weight(node.input(1))) return false;
    if (!is_native_float(node.outputs[0]->dtype())) return false;
    if (node.is("Conv")) return node.outputs[0]->rank() >= 3;
    if (node.is("Gemm") && (node.input(2) || node.get_float("alpha", 1) != 1)) return false;
    return (node.is("Gemm") || node.is("MatMul")) && node.inputs[0]->rank() >= 2 && node.inputs[1]->rank() == 2;
  }

  // Appends what follows the node, one after the other; returns the last one.
  const Node* add_followers(NodeGroup& group, const Node& root) {
    const TensorDesc desc = desc_of_(root.outputs[0]);
    const Node* last = &root;
    if (desc.count() == 0) return last;
    while (group.followers.size() < kMostFollowers) {
      const Value* value = last->outputs[0];
      if (value->uses.size() != 1 || kept_.contains(value)) break;
      const Node& node = *value->uses[0].node;
      if (!can_follow(node) || taken_.contains(&node)) break;
      const TensorDesc result = desc_of_(node.outputs[0]);
      if (result.dtype != desc.dtype || result.dims != desc.dims) break;
      Follower follower{&node, -1};
      if (takes_operand(node)) {
        Value* other = node.inputs[1 - value->uses[0].index];
        const TensorDesc operand = desc_of_(other);
        if (!fits(operand, desc, root.is("Conv"))) break;
        // A convolution adds another tensor only as what its result's memory holds before.
        const bool held = node.is("Add") && group.followers.empty();
        if (root.is("Conv") && operand.dims == desc.dims && !held) break;
        if (root.is("Conv")) group.inputs.resize(std::max<size_t>(group.inputs.size(), 3));  // the bias's place
        follower.operand = static_cast<int>(group.inputs.size());
        group.inputs.push_back(other);
      }
      group.followers.push_back(follower);
      taken_.insert(&node);
      last = &node;
    }
    group.outputs = last->outputs;
    return last;
  }

  // The other operand of a sum or product: like the result, or one value per column or channel.
  static bool fits(const TensorDesc& other, const TensorDesc& result, bool channels) {
    if (other.dtype != result.dtype) return false;
    if (other.dims == result.dims) return true;
    const size_t axis = channels ? 1 : result.dims.size() - 1;
    const size_t offset = result.dims.size() - other.dims.size();  // aligned at the right
    if (other.dims.size() > result.dims.size() || axis < offset || other.count() != result.dims[axis]) return false;
    return other.dims[axis - offset] == result.dims[axis];
  }

  const Graph& graph_;
  const DescOf& desc_of_;
  std::set<const Value*> kept_;           // read after the run: outputs, and states' next values
  std::set<const Node*> taken_;           // followers
  std::map<const Node*, size_t> spared_;  // readers of a Transpose that do without it
};

}  // namespace

Grouping group_nodes(const Graph& graph, const DescOf& desc_of) {
  return Grouper(graph, desc_of).run();
}

Grouping single_nodes(const Graph& graph, const DescOf& desc_of) {
  Grouping grouping;
  for (const auto& node : graph.nodes()) grouping.groups.push_back(single(*node, desc_of));
  return grouping;
}

}  // namespace tessera::kernels
