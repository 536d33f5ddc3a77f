#pragma once

#include <set>

#include "tessera/kernels/cpu/onednn.h"
#include "tessera/kernels/groups.h"

/// Blocks of channels: the layout in which oneDNN's convolutions and poolings are fastest.
namespace tessera::kernels {

/// TensorDesc::block that this machine's convolutions of the type want; 0 if they want none.
int64_t channel_block(DType dtype);

/// oneDNN's layout of a tensor: row-major, or in the desc's blocks.
onednn::Md layout_of(const TensorDesc& desc);

/// Decides which values lie in blocks: those that pass only between convolutions, poolings and element-wise nodes that
/// all support blocks. `kept` values are read after the run, and stay row-major.
std::map<const Value*, int64_t> assign_blocks(const std::vector<NodeGroup>& groups, const std::set<const Value*>& kept,
                                              const DescOf& desc_of);

}  // namespace tessera::kernels
