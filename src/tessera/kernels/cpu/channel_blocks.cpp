#include "tessera/kernels/cpu/channel_blocks.h"

#include <algorithm>
#include <array>
#include <set>

#include "tessera/kernels/cpu/convolution_layout.h"
#include "tessera/kernels/cpu/followers.h"
#include "tessera/kernels/packing.h"

namespace tessera::kernels {
namespace {

using Tag = dnnl::memory::format_tag;

// By spatial rank 1 to 3.
constexpr std::array<Tag, 3> kBlocks16{Tag::nCw16c, Tag::nChw16c, Tag::nCdhw16c};
constexpr std::array<Tag, 3> kBlocks8{Tag::nCw8c, Tag::nChw8c, Tag::nCdhw8c};

bool has_blocks(const TensorDesc& desc) {
  return desc.rank() >= 3 && desc.rank() <= 5 && desc.count() > 0 && channel_block(desc.dtype) > 0;
}

bool is_elementwise(const Node& node) {
  return can_follow(node) && keeps_zero(node);
}

/// What a group can take and give in blocks.
class Assignment {
 public:
  Assignment(const std::vector<NodeGroup>& groups, const Graph& graph, const DescOf& desc_of)
      : groups_(groups), graph_(graph), desc_of_(desc_of) {}

  std::map<const Value*, int64_t> run() {
    for (const NodeGroup& group : groups_)
      for (const Value* output : group.outputs)
        if (output && gives(group, output) && !graph_.is_output(output)) blocked_.insert(output);
    // A value that somebody cannot take lies row-major, and then so does all that must lie like it.
    bool changed = true;
    while (changed) {
      changed = false;
      for (const NodeGroup& group : groups_)
        for (size_t i = 0; i < group.inputs.size(); ++i)
          if (blocked_.contains(group.inputs[i]) && !takes(group, i)) {
            blocked_.erase(group.inputs[i]);
            changed = true;
          }
      for (const NodeGroup& group : groups_) changed |= level(group);
    }
    std::map<const Value*, int64_t> blocks;
    for (const Value* value : blocked_) blocks[value] = channel_block(value->dtype());
    return blocks;
  }

 private:
  bool is_convolution(const NodeGroup& group) const {
    const Node& node = *group.root;
    if (!node.is("Conv") || !has_blocks(desc_of_(node.outputs[0]))) return false;
    const TensorDesc x = desc_of_(node.inputs[0]), weight = desc_of_(node.inputs[1]), y = desc_of_(node.outputs[0]);
    const int64_t groups = node.get_int("group", 1), block = channel_block(x.dtype);
    if (block == 0 || !packed_layout(node, weight)) return false;
    if (groups == 1) return true;
    const bool depthwise = groups == x.dims[1] && groups == y.dims[1];
    return depthwise || (x.dims[1] / groups % block == 0 && y.dims[1] / groups % block == 0);
  }

  bool is_pooling(const NodeGroup& group) const {
    const Node& node = *group.root;
    if (!node.domain.empty() || node.output(1) || node.get_int("ceil_mode", 0) != 0) return false;
    const auto dilations = node.get_ints("dilations");
    if (std::any_of(dilations.begin(), dilations.end(), [](int64_t d) { return d != 1; })) return false;
    return (node.is("MaxPool") || node.is("AveragePool")) && has_blocks(desc_of_(node.inputs[0]));
  }

  // One window whose result, a column of channels, lies the same with and without whole blocks.
  bool is_global_pooling(const NodeGroup& group) const {
    const TensorDesc x = desc_of_(group.inputs[0]);
    return group.root->is("GlobalAveragePool") && has_blocks(x) && x.dims[1] % channel_block(x.dtype) == 0;
  }

  bool is_elementwise_group(const NodeGroup& group) const {
    if (!is_elementwise(*group.root) || !group.followers.empty()) return false;
    const TensorDesc y = desc_of_(group.outputs[0]);
    return has_blocks(y) && std::all_of(group.inputs.begin(), group.inputs.end(), [&](const Value* input) {
             const TensorDesc x = desc_of_(input);
             return x.dims == y.dims && x.dtype == y.dtype;
           });
  }

  bool gives(const NodeGroup& group, const Value*) const {
    return is_convolution(group) || is_pooling(group) || is_elementwise_group(group);
  }

  bool takes(const NodeGroup& group, size_t input) const {
    if (is_convolution(group))
      return input == 0 || desc_of_(group.inputs[input]).dims == desc_of_(group.outputs[0]).dims;
    if (is_pooling(group) || is_global_pooling(group)) return input == 0;
    return is_elementwise_group(group);
  }

  // Operands and results that an element-wise loop goes through together lie alike.
  bool level(const NodeGroup& group) {
    std::vector<const Value*> alike;
    if (is_elementwise_group(group)) alike.assign(group.inputs.begin(), group.inputs.end());
    if (group.root->is("Conv"))
      for (const Follower& follower : group.followers)
        if (follower.operand >= 0 && desc_of_(group.inputs[follower.operand]).dims == desc_of_(group.outputs[0]).dims)
          alike.push_back(group.inputs[follower.operand]);
    if (is_pooling(group)) alike.push_back(group.inputs[0]);
    if (alike.empty()) return false;
    alike.push_back(group.outputs[0]);
    const auto lies_in_blocks = [&](const Value* value) { return blocked_.contains(value); };
    if (std::all_of(alike.begin(), alike.end(), lies_in_blocks)) return false;
    bool changed = false;
    for (const Value* value : alike) changed |= blocked_.erase(value) > 0;
    return changed;
  }

  const std::vector<NodeGroup>& groups_;
  const Graph& graph_;
  const DescOf& desc_of_;
  std::set<const Value*> blocked_;
};

}  // namespace

onednn::Md layout_of(const TensorDesc& desc) {
  if (desc.block == 0) return onednn::dense(desc.dtype, desc.dims);
  const auto& tags = desc.block == 16 ? kBlocks16 : kBlocks8;
  return {desc.dims, onednn::type_of(desc.dtype), tags.at(desc.dims.size() - 3)};
}

int64_t channel_block(DType dtype) {
  const auto wanted = [](DType type) -> int64_t {
    if (!onednn::is_native(type)) return 0;
    const Dims image{1, 64, 28, 28}, weights{64, 64, 3, 3};
    onednn::TeamScope team(1);
    const auto desc = onednn::convolution(onednn::any_layout(type, image), onednn::any_layout(type, weights), {},
                                          onednn::any_layout(type, image), {{1, 1}, {1, 1}, {1, 1}, {1, 1}});
    if (!desc) return 0;
    for (int64_t block : {16, 8})
      if (desc->src_desc() == layout_of({type, image, block}) && desc->dst_desc() == layout_of({type, image, block}))
        return block;
    return 0;
  };
  static const int64_t of_float32 = wanted(DType::float32), of_bfloat16 = wanted(DType::bfloat16);
  return dtype == DType::float32 ? of_float32 : dtype == DType::bfloat16 ? of_bfloat16 : 0;
}

std::map<const Value*, int64_t> assign_blocks(const std::vector<NodeGroup>& groups, const Graph& graph,
                                              const DescOf& desc_of) {
  return Assignment(groups, graph, desc_of).run();
}

}  // namespace tessera::kernels
