#pragma once

#include <cstdint>

namespace tessera::cli {

/// Bytes of this process that are in memory, but for pages of files, which the system may drop and read again. 0: the
/// system does not say.
int64_t resident_bytes();

}  // namespace tessera::cli
