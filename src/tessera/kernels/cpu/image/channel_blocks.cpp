#include "tessera/kernels/cpu/image/channel_blocks.h"

#include <array>

#include "tessera/kernels/cpu/image/convolution_layout.h"
#include "tessera/kernels/library.h"

namespace tessera::kernels {
namespace {

using Tag = dnnl::memory::format_tag;

// By spatial rank 1 to 3.
constexpr std::array<Tag, 3> kBlocks16{Tag::nCw16c, Tag::nChw16c, Tag::nCdhw16c};
constexpr std::array<Tag, 3> kBlocks8{Tag::nCw8c, Tag::nChw8c, Tag::nCdhw8c};

}  // namespace

onednn::Md layout_of(const TensorDesc& desc) {
  if (desc.block == 0) return onednn::dense(desc.dtype, desc.dims);
  const auto& tags = desc.block == 16 ? kBlocks16 : kBlocks8;
  return {desc.dims, onednn::type_of(desc.dtype), tags.at(desc.dims.size() - 3)};
}

// The primitive is asked for blocks, because a free choice may fall on another layout that is as fast.
int64_t channel_block(DType dtype) {
  const auto wanted = [](DType type) -> int64_t {
    if (!onednn::is_native(type)) return 0;
    const Dims image{1, 64, 28, 28}, weights{64, 64, 3, 3};
    onednn::TeamScope team(1);
    for (int64_t block : {16, 8}) {
      const onednn::Md blocked = layout_of({type, image, block});
      if (onednn::convolution(blocked, onednn::any_layout(type, weights), {}, blocked,
                              {{1, 1}, {1, 1}, {1, 1}, {1, 1}}))
        return block;
    }
    return 0;
  };
  static const int64_t of_float32 = wanted(DType::float32), of_bfloat16 = wanted(DType::bfloat16);
  if (dtype == DType::uint8 || dtype == DType::int8) return all_channels;  // by our own kernels
  return dtype == DType::float32 ? of_float32 : dtype == DType::bfloat16 ? of_bfloat16 : 0;
}

}  // namespace tessera::kernels
