#pragma once

#include "tessera/kernels/kernel.h"

/// Images of bytes whose channels come last: TensorDesc::block is the number of channels.
namespace tessera::kernels {

/// From [channels, places] to [places, channels], or back with the extents exchanged.
void turn_bytes(const std::byte* from, int64_t rows, int64_t columns, std::byte* to, int threads);

/// A MaxPool of such images; null if the operand and the result have another layout.
std::unique_ptr<Kernel> max_pool_channels_last(const PrepareContext& context);

}  // namespace tessera::kernels
