#pragma once

#include "tessera/bind/places.h"
#include "tessera/bind/subject.h"

namespace tessera::bind {

/// Bytes of the whole tensor before the first of a contiguous part.
size_t skip_of(const Box& part, const Value* value);

/// Whether the host must gather or scatter a part, because the device copies one piece.
bool is_staged(const device::Device& device, const Box& part);

/// The results that are made where the caller's outputs are: those that are one piece of an output, if this rank is the
/// one that writes it.
Destinations results_in_outputs(const Subject& subject, const Values& values);

/// How the other results get into the caller's whole tensors after the last action.
std::vector<HostCopy> copies_of_outputs(const Subject& subject, const Values& values, const Places& places);

}  // namespace tessera::bind
