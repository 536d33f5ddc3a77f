#pragma once

#include "tessera/kernels/cpu/library/onednn.h"
#include "tessera/kernels/kernel.h"

/// Blocks of channels: the layout in which oneDNN's convolutions and poolings are fastest.
namespace tessera::kernels {

/// TensorDesc::block that this machine's convolutions of the type want; 0 if they need none, all_channels (library.h)
/// if their channels come last.
int64_t channel_block(DType dtype);

/// oneDNN's layout of a tensor of floats: row-major, in the desc's blocks, or with its channels last.
onednn::Md layout_of(const TensorDesc& desc);

}  // namespace tessera::kernels
