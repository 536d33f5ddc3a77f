#pragma once

#include <exception>

#include "tessera/error.h"

namespace tessera {

/// Whose fault an exception is; one that is no Error happened while running.
inline ErrorKind error_kind(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  return known ? known->kind() : ErrorKind::running;
}

}  // namespace tessera
