#include "tessera/ir/hash.h"

#include <array>
#include <cstring>

#include "tessera/base/multiversion.h"

namespace tessera {
namespace {

constexpr size_t kLanes = 32;
constexpr size_t kBlock = kLanes * sizeof(uint64_t);
using Lanes = std::array<uint64_t, kLanes>;

// Absorbs a word. For a given state, different words give different states, and vice versa.
inline uint64_t mixed(uint64_t state, uint64_t word) {
  const uint64_t product = (state ^ word) * 0x9e3779b97f4a7c15ULL;  // odd: 2^64 over the golden ratio
  return product ^ product >> 32;  // otherwise two words that differ only in their last bits would cancel
}

TESSERA_MULTIVERSION void take_blocks(const std::byte* data, size_t blocks, Lanes& lanes) {
  Lanes now = lanes, words;
  for (; blocks > 0; --blocks, data += kBlock) {
    std::memcpy(words.data(), data, kBlock);
    for (size_t i = 0; i < kLanes; ++i) now[i] = mixed(now[i], words[i]);
  }
  lanes = now;
}

}  // namespace

uint64_t hash_of_bytes(const std::byte* data, size_t bytes) {
  Lanes lanes;
  for (size_t i = 0; i < kLanes; ++i) lanes[i] = mixed(i, bytes);
  take_blocks(data, bytes / kBlock, lanes);
  if (const size_t rest = bytes % kBlock; rest > 0) {
    std::array<std::byte, kBlock> last{};
    std::memcpy(last.data(), data + (bytes - rest), rest);
    take_blocks(last.data(), 1, lanes);
  }
  uint64_t all = 0;
  for (uint64_t lane : lanes) all = mixed(all, lane);
  return all;
}

}  // namespace tessera
