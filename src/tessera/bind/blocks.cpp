#include "tessera/bind/blocks.h"

#include <algorithm>

namespace tessera::bind {
namespace {

using kernels::Follower;
using kernels::Library;
using kernels::TensorDesc;

/// The role of a group for blocks.
enum class Role : uint8_t { none, convolution, integer_convolution, pooling, global_pooling, elementwise };

class Assignment {
 public:
  Assignment(const std::vector<NodeGroup>& groups, const std::set<const Value*>& kept, const DescOf& desc_of,
             const Library& library)
      : groups_(groups), kept_(kept), desc_of_(desc_of), library_(library) {
    for (const NodeGroup& group : groups) roles_.push_back(role_of(group));
  }

  std::map<const Value*, int64_t> run() {
    for (size_t g = 0; g < groups_.size(); ++g)
      for (const Value* output : groups_[g].outputs)
        if (output && gives(roles_[g]) && !kept_.contains(output)) blocked_.insert(output);
    // If some reader cannot take a value in blocks, it is row-major, and so are all values that must have the same
    // layout.
    bool changed = true;
    while (changed) {
      changed = false;
      for (size_t g = 0; g < groups_.size(); ++g) {
        for (size_t i = 0; i < groups_[g].inputs.size(); ++i)
          if (!takes(g, i)) changed |= blocked_.erase(groups_[g].inputs[i]) > 0;
        changed |= level(g);
      }
    }
    std::map<const Value*, int64_t> blocks;
    for (const Value* value : blocked_) blocks[value] = block_of(desc_of_(value));
    return blocks;
  }

 private:
  int64_t block_of(const TensorDesc& desc) const {
    const int64_t block = library_.channel_block(desc.dtype);
    return block == kernels::all_channels ? desc.dims[1] : block;
  }

  bool has_blocks(const TensorDesc& desc) const {
    return desc.rank() >= 3 && desc.rank() <= 5 && desc.count() > 0 && block_of(desc) > 0;
  }

  bool has_channels_last(const TensorDesc& desc) const {
    return has_blocks(desc) && library_.channel_block(desc.dtype) == kernels::all_channels;
  }

  bool is_elementwise(const Node& node) const { return library_.can_follow(node) && library_.keeps_zero(node); }

  Role role_of(const NodeGroup& group) const {
    if (is_convolution(group)) return Role::convolution;
    if (is_integer_convolution(group)) return Role::integer_convolution;
    if (is_pooling(group)) return Role::pooling;
    if (is_global_pooling(group)) return Role::global_pooling;
    return is_elementwise_group(group) ? Role::elementwise : Role::none;
  }

  // Its followers' other operands must be like its result, since one value per channel has another layout in blocks.
  bool is_convolution(const NodeGroup& group) const {
    const Node& node = *group.root;
    if (!node.is("Conv") || !group.packed) return false;
    const TensorDesc x = desc_of_(node.inputs[0]), y = desc_of_(node.outputs[0]);
    if (!has_blocks(x) || !has_blocks(y)) return false;
    for (const Follower& follower : group.followers)
      if (follower.other() >= 0 && desc_of_(group.inputs[follower.other()]).dims != y.dims) return false;
    const int64_t groups = node.get_int("group", 1), block = library_.channel_block(x.dtype);
    if (groups == 1) return true;
    const bool depthwise = groups == x.dims[1] && groups == y.dims[1];
    return depthwise || (x.dims[1] / groups % block == 0 && y.dims[1] / groups % block == 0);
  }

  bool is_integer_convolution(const NodeGroup& group) const {
    const Node& node = *group.root;
    if (!node.is("ConvInteger") || !node.domain.empty() || !has_blocks(desc_of_(node.inputs[0]))) return false;
    return has_channels_last(desc_of_(group.outputs[0]));
  }

  bool is_pooling(const NodeGroup& group) const {
    const Node& node = *group.root;
    if ((!node.is("MaxPool") && !node.is("AveragePool")) || node.output(1)) return false;
    return has_blocks(desc_of_(node.inputs[0])) && has_blocks(desc_of_(node.outputs[0])) &&
           library_.pools_in_blocks(node, desc_of_(node.inputs[0]), desc_of_(node.outputs[0]));
  }

  // One window per plane: its result, a column of channels, has the same layout with and without whole blocks.
  bool is_global_pooling(const NodeGroup& group) const {
    if (!group.root->is("GlobalAveragePool")) return false;
    const TensorDesc x = desc_of_(group.inputs[0]);
    return has_blocks(x) && x.dims[1] % library_.channel_block(x.dtype) == 0;
  }

  // Without blocks that are filled with zeros, any node will do.
  bool is_byte_group(const NodeGroup& group) const {
    const auto is_one_of_group = [&](const Node* node) { return library_.can_group(*node); };
    const Value* made = group.outputs.empty() ? nullptr : group.outputs[0];
    const bool alone =
        std::count_if(group.outputs.begin(), group.outputs.end(), [](auto* value) { return value; }) == 1;
    if (!made || library_.channel_block(made->dtype()) != kernels::all_channels) return false;  // whatever the sizes
    if (!alone || !is_one_of_group(group.root)) return false;
    if (!std::all_of(group.followers.begin(), group.followers.end(),
                     [&](const Follower& follower) { return is_one_of_group(follower.node); }))
      return false;
    const TensorDesc y = desc_of_(made);
    return has_channels_last(y) && std::all_of(group.inputs.begin(), group.inputs.end(), [&](const Value* input) {
             const TensorDesc x = input ? desc_of_(input) : TensorDesc{};
             return x.dims == y.dims ? has_channels_last(x) : x.count() == 1;
           });
  }

  bool is_elementwise_group(const NodeGroup& group) const {
    if (is_byte_group(group)) return true;
    const auto keeps_padding = [this](const Follower& follower) { return is_elementwise(*follower.node); };
    if (!is_elementwise(*group.root) || !std::all_of(group.followers.begin(), group.followers.end(), keeps_padding))
      return false;
    const TensorDesc y = desc_of_(group.outputs[0]);
    return has_blocks(y) && std::all_of(group.inputs.begin(), group.inputs.end(), [&](const Value* input) {
             const TensorDesc x = desc_of_(input);
             return x.dims == y.dims && x.dtype == y.dtype;
           });
  }

  // The codes that a convolution of integers adds to its own.
  static const Value* added_codes(const NodeGroup& group) {
    for (const Follower& follower : group.followers)
      if (follower.node->is("DequantizeLinear") && follower.operands[0] >= 0) return group.inputs[follower.operands[0]];
    return nullptr;
  }

  static bool gives(Role role) { return role != Role::none && role != Role::global_pooling; }

  bool takes(size_t g, size_t input) const {
    if (roles_[g] == Role::elementwise || input == 0) return roles_[g] != Role::none;
    if (roles_[g] == Role::integer_convolution) return groups_[g].inputs[input] == added_codes(groups_[g]);
    const auto& followers = groups_[g].followers;
    return roles_[g] == Role::convolution && std::any_of(followers.begin(), followers.end(), [&](const Follower& f) {
             return f.other() == static_cast<int>(input);
           });
  }

  // Operands and results that one loop passes together have the same layout.
  bool level(size_t g) {
    const NodeGroup& group = groups_[g];
    std::vector<const Value*> alike;
    if (roles_[g] == Role::elementwise)
      for (const Value* input : group.inputs)
        if (input && desc_of_(input).dims == desc_of_(group.outputs[0]).dims) alike.push_back(input);
    if (roles_[g] == Role::pooling) alike.push_back(group.inputs[0]);
    if (roles_[g] == Role::integer_convolution)
      if (const Value* added = added_codes(group)) alike.push_back(added);
    if (roles_[g] == Role::convolution)
      for (const Follower& follower : group.followers)
        if (follower.other() >= 0) alike.push_back(group.inputs[follower.other()]);
    if (alike.empty()) return false;
    for (const Value* output : group.outputs)
      if (output) alike.push_back(output);
    const auto lies_in_blocks = [&](const Value* value) { return blocked_.contains(value); };
    if (std::all_of(alike.begin(), alike.end(), lies_in_blocks)) return false;
    bool changed = false;
    for (const Value* value : alike) changed |= blocked_.erase(value) > 0;
    return changed;
  }

  const std::vector<NodeGroup>& groups_;
  const std::set<const Value*>& kept_;
  const DescOf& desc_of_;
  const Library& library_;
  std::vector<Role> roles_;  // by group
  std::set<const Value*> blocked_;
};

}  // namespace

std::map<const Value*, int64_t> assign_blocks(const std::vector<NodeGroup>& groups, const std::set<const Value*>& kept,
                                              const DescOf& desc_of, const kernels::Library& library) {
  return Assignment(groups, kept, desc_of, library).run();
}

}  // namespace tessera::bind
