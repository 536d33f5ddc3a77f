#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera {

/// Continues a CRC-32 (ISO 3309, as in zip and PNG) over more bytes; starts from 0.
uint32_t update_crc32(uint32_t crc, const void* data, size_t bytes);

}  // namespace tessera
