#include <algorithm>

#include "tessera/kernels/cpu/elementwise/followers.h"
#include "tessera/kernels/cpu/elementwise/group.h"
#include "tessera/kernels/cpu/image/channel_blocks.h"
#include "tessera/kernels/cpu/image/pooling.h"
#include "tessera/kernels/cpu/library/fusions.h"
#include "tessera/kernels/library.h"

namespace tessera::kernels {
namespace {

bool has_blocks(const TensorDesc& type) {
  return type.rank() >= 3 && type.rank() <= 5 && type.count() > 0 && block_of(type) > 0;
}

bool has_channels_last(const TensorDesc& type) {
  return has_blocks(type) && channel_block(type.dtype) == all_channels;
}

bool is_byte(const TensorDesc& type) {
  return type.dtype == DType::uint8 || type.dtype == DType::int8;
}

// Its followers' other operands must be like its result, since one value per channel has another layout in blocks.
bool convolves_in_blocks(const Fusion& fusion, const TypeOf& type) {
  const Node& node = *fusion.root;
  if (!node.is("Conv") || !fusion.packed) return false;
  const TensorDesc x = type(node.inputs[0]), y = type(node.outputs[0]);
  if (!has_blocks(x) || !has_blocks(y)) return false;
  for (const Follower& follower : fusion.followers)
    if (follower.other() >= 0 && type(fusion.inputs[follower.other()]).dims != y.dims) return false;
  const int64_t groups = node.get_int("group", 1), block = channel_block(x.dtype);
  if (groups == 1 || block == all_channels) return true;
  const bool depthwise = groups == x.dims[1] && groups == y.dims[1];
  return depthwise || (x.dims[1] / groups % block == 0 && y.dims[1] / groups % block == 0);
}

bool convolves_integers_in_blocks(const Fusion& fusion, const TypeOf& type) {
  const Node& node = *fusion.root;
  if (!node.is("ConvInteger") || !node.domain.empty() || !has_blocks(type(node.inputs[0]))) return false;
  return has_channels_last(type(fusion.outputs[0]));
}

bool pools_in_blocks(const Node& node, const TypeOf& type) {
  if ((!node.is("MaxPool") && !node.is("AveragePool")) || node.output(1)) return false;
  const TensorDesc x = type(node.inputs[0]), y = type(node.outputs[0]);
  if (!has_blocks(x) || !has_blocks(y)) return false;
  return is_byte(x) ? node.is("MaxPool") : library_pools(node, x, y);
}

// One window per plane: its result, a column of channels, has the same layout with and without whole blocks.
bool pools_planes_in_blocks(const Fusion& fusion, const TypeOf& type) {
  if (!fusion.root->is("GlobalAveragePool")) return false;
  const TensorDesc x = type(fusion.inputs[0]);
  return has_blocks(x) && !is_byte(x) && x.dims[1] % block_of(x) == 0;
}

// Without blocks that are filled with zeros, any element-wise node will do.
bool is_elementwise_without_padding(const Fusion& fusion, const TypeOf& type) {
  const Value* made = fusion.outputs.empty() ? nullptr : fusion.outputs[0];
  const bool alone =
      std::count_if(fusion.outputs.begin(), fusion.outputs.end(), [](auto* value) { return value; }) == 1;
  if (!made || channel_block(made->dtype()) != all_channels) return false;  // whatever the sizes
  if (!alone || !can_group(*fusion.root)) return false;
  if (!std::all_of(fusion.followers.begin(), fusion.followers.end(),
                   [](const Follower& follower) { return can_group(*follower.node); }))
    return false;
  const TensorDesc y = type(made);
  return has_channels_last(y) && std::all_of(fusion.inputs.begin(), fusion.inputs.end(), [&](const Value* input) {
           const TensorDesc x = input ? type(input) : TensorDesc{};
           return x.dims == y.dims ? has_channels_last(x) : x.count() == 1;
         });
}

bool is_elementwise_in_blocks(const Fusion& fusion, const TypeOf& type) {
  if (is_elementwise_without_padding(fusion, type)) return true;
  const auto keeps_padding = [](const Node& node) { return can_follow(node) && keeps_zero(node); };
  if (!keeps_padding(*fusion.root) ||
      !std::all_of(fusion.followers.begin(), fusion.followers.end(),
                   [&](const Follower& follower) { return keeps_padding(*follower.node); }))
    return false;
  const TensorDesc y = type(fusion.outputs[0]);
  return has_blocks(y) && std::all_of(fusion.inputs.begin(), fusion.inputs.end(), [&](const Value* input) {
           const TensorDesc x = type(input);
           return x.dims == y.dims && x.dtype == y.dtype;
         });
}

// The operands that are the codes that a convolution of integers adds to its own.
std::vector<size_t> added_codes(const Fusion& fusion) {
  std::vector<size_t> all;
  for (const Follower& follower : fusion.followers) {
    if (!follower.node->is("DequantizeLinear") || follower.operands[0] < 0) continue;
    const Value* codes = fusion.inputs[follower.operands[0]];
    for (size_t i = 0; codes && i < fusion.inputs.size(); ++i)
      if (fusion.inputs[i] == codes) all.push_back(i);
    return all;
  }
  return all;
}

BlockUse use_of(const Fusion& fusion, bool gives, const std::vector<size_t>& taken, std::vector<size_t> alike) {
  BlockUse use{gives, std::vector<bool>(fusion.inputs.size(), false), std::move(alike)};
  for (const size_t i : taken) use.takes[i] = true;
  return use;
}

}  // namespace

int64_t block_of(const TensorDesc& type) {
  const int64_t block = channel_block(type.dtype);
  return block == all_channels ? type.dims[1] : block;
}

BlockUse block_use(const Fusion& fusion, const TypeOf& type) {
  if (convolves_in_blocks(fusion, type)) {
    std::vector<size_t> taken{0}, others;
    for (const Follower& follower : fusion.followers)
      if (follower.other() >= 0) others.push_back(static_cast<size_t>(follower.other()));
    taken.insert(taken.end(), others.begin(), others.end());
    return use_of(fusion, true, taken, others);
  }
  if (convolves_integers_in_blocks(fusion, type)) {
    const std::vector<size_t> added = added_codes(fusion);
    std::vector<size_t> taken{0};
    taken.insert(taken.end(), added.begin(), added.end());
    return use_of(fusion, true, taken, added);
  }
  if (pools_in_blocks(*fusion.root, type)) return use_of(fusion, true, {0}, {0});
  if (pools_planes_in_blocks(fusion, type)) return use_of(fusion, false, {0}, {});
  if (!is_elementwise_in_blocks(fusion, type)) return use_of(fusion, false, {}, {});
  std::vector<size_t> all, alike;
  const Dims dims = type(fusion.outputs[0]).dims;
  for (size_t i = 0; i < fusion.inputs.size(); ++i) {
    all.push_back(i);
    if (fusion.inputs[i] && type(fusion.inputs[i]).dims == dims) alike.push_back(i);
  }
  return use_of(fusion, true, all, alike);
}

}  // namespace tessera::kernels
