#pragma once

#include <set>

#include "tessera/bind/groups.h"

namespace tessera::bind {

/// Decides which values are in blocks of channels, the layout in which convolutions and poolings are fastest: those
/// that pass only between kernels that take blocks (Library::block_use). `kept` values are read after the run, so they
/// stay row-major.
std::map<const Value*, int64_t> assign_blocks(const std::vector<NodeGroup>& groups, const std::set<const Value*>& kept,
                                              const kernels::TypeOf& type_of, const kernels::Library& library);

}  // namespace tessera::bind
