#pragma once

#include "tessera/base/error.h"

namespace tessera {

/// The implementation of an object of the public API. Throws a user error if the object was moved from.
template <typename Pointer>
auto& unmoved(const Pointer& held) {
  if (!held) fail("api", "the object was moved from; use the one that it was moved to");
  return *held;
}

}  // namespace tessera
