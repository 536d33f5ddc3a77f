#include "tessera/io/crc32.h"

#include <zlib.h>

namespace tessera {

uint32_t update_crc32(uint32_t crc, const void* data, size_t bytes) {
  return static_cast<uint32_t>(crc32_z(crc, static_cast<const Bytef*>(data), bytes));
}

}  // namespace tessera
