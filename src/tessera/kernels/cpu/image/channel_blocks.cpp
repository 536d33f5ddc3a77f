#include "tessera/kernels/cpu/image/channel_blocks.h"

#include <array>

#include "tessera/kernels/cpu/image/convolution_layout.h"
#include "tessera/kernels/library.h"

namespace tessera::kernels {
namespace {

using Tag = dnnl::memory::format_tag;

// By spatial rank 1 to 3.
using Tags = std::array<Tag, 3>;
constexpr Tags kBlocks16{Tag::nCw16c, Tag::nChw16c, Tag::nCdhw16c};
constexpr Tags kBlocks8{Tag::nCw8c, Tag::nChw8c, Tag::nCdhw8c};
constexpr Tags kChannelsLast{Tag::nwc, Tag::nhwc, Tag::ndhwc};

const Tags& tags_of(int64_t block) {
  return block == all_channels ? kChannelsLast : block == 16 ? kBlocks16 : kBlocks8;
}

onednn::Md in_blocks(DType dtype, const Dims& dims, int64_t block) {
  return {dims, onednn::type_of(dtype), tags_of(block).at(dims.size() - 3)};
}

// The primitive is asked for a layout, because a free choice may fall on another one that is as fast. The tiles of AMX
// multiply images whose channels come last, and all else multiplies blocks.
int64_t find_block(DType dtype) {
  if (!onednn::is_native(dtype)) return 0;
  const Dims image{1, 64, 28, 28}, weights{64, 64, 3, 3};
  onednn::TeamScope team(1);
  for (int64_t block : {all_channels, int64_t{16}, int64_t{8}}) {
    const onednn::Md x = in_blocks(dtype, image, block);
    const auto found =
        onednn::convolution(x, onednn::any_layout(dtype, weights), {}, x, {{1, 1}, {1, 1}, {1, 1}, {1, 1}});
    if (found && (block != all_channels || onednn::uses_amx(*found))) return block;
  }
  return 0;
}

}  // namespace

onednn::Md layout_of(const TensorDesc& desc) {
  if (desc.block == 0) return onednn::dense(desc.dtype, desc.dims);
  const bool last = channel_block(desc.dtype) == all_channels;
  return in_blocks(desc.dtype, desc.dims, last ? all_channels : desc.block);
}

int64_t channel_block(DType dtype) {
  if (dtype == DType::uint8 || dtype == DType::int8) return all_channels;  // by our own kernels
  static const int64_t of_float32 = find_block(DType::float32), of_bfloat16 = find_block(DType::bfloat16);
  return dtype == DType::float32 ? of_float32 : dtype == DType::bfloat16 ? of_bfloat16 : 0;
}

}  // namespace tessera::kernels
