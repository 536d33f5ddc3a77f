#pragma once

#include "tessera/kernels/kernel.h"

/// The groups that make up the movement family, one file each.
namespace tessera::kernels {

std::vector<KernelEntry> rearranging_kernels();  // views, Transpose, Slice, Expand, Tile, DepthToSpace, …
std::vector<KernelEntry> joining_kernels();      // Concat, Split
std::vector<KernelEntry> padding_kernels();      // Pad
std::vector<KernelEntry> resizing_kernels();     // Resize
std::vector<KernelEntry> making_kernels();       // Range, ConstantOfShape, EyeLike, Trilu, Shape, Size

}  // namespace tessera::kernels
