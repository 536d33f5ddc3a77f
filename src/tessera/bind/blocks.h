#pragma once

#include <set>

#include "tessera/bind/groups.h"

namespace tessera::bind {

/// Decides which values lie in blocks of channels, the layout in which convolutions and poolings are fastest: those
/// that pass only between convolutions, poolings and element-wise nodes that all support blocks. `kept` values are read
/// after the run, and stay row-major.
std::map<const Value*, int64_t> assign_blocks(const std::vector<NodeGroup>& groups, const std::set<const Value*>& kept,
                                              const DescOf& desc_of, const kernels::Library& library);

}  // namespace tessera::bind
