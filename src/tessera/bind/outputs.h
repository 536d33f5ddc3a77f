#pragma once

#include "tessera/bind/places.h"
#include "tessera/bind/subject.h"

namespace tessera::bind {

/// Bytes of the whole tensor before a contiguous part.
size_t skip_of(const Box& part, const Value* value);

/// Whether the host must gather or scatter a part, because the device copies only contiguous memory.
bool is_staged(const device::Device& device, const Box& part);

/// The results that are made in the memory of the caller's outputs: those that are a contiguous piece of an output that
/// this rank writes.
Destinations results_in_outputs(const Subject& subject, const Values& values);

/// The copies that bring the other results to the caller's whole tensors after the last action.
std::vector<HostCopy> copies_of_outputs(const Subject& subject, const Values& values, const Places& places);

}  // namespace tessera::bind
