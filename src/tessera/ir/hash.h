#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "tessera/ir/tensor.h"

namespace tessera {

/// 64 bits of bytes, read as words of 64 bits that are dealt to lanes in turn. Bytes that differ in one word have
/// different hashes. As fast as memory: the lanes are as many as make up the widest registers four times.
uint64_t hash_of_bytes(const std::byte* data, size_t bytes);

/// Which elements of a tensor count: all if `pieces` of `bytes` hold them, else those of so many pieces, spread from
/// its first byte to its last.
struct HashSample {
  size_t pieces, bytes;
};

/// 64 bits by which ranks tell whether they have the same: FNV-1a (Fowler, Noll and Vo) of text; of elements, the same
/// by words, with the upper half mixed in so that words which differ in their last bits only do not cancel.
class Hash {
 public:
  void add(std::string_view text) {
    for (char letter : text) value_ = (value_ ^ static_cast<unsigned char>(letter)) * 0x100000001b3ULL;
    value_ = (value_ ^ 0xff) * 0x100000001b3ULL;  // "ab", "c" is not "a", "bc"
  }
  /// Type, extents and elements. Tensors that differ in one word of those that count have different hashes.
  void add(const Tensor& tensor, HashSample sample) {
    add(name_of(tensor.dtype));
    add(fmt::format("{}", fmt::join(tensor.dims, ",")));
    if (!tensor.data) return;
    if (tensor.bytes <= sample.pieces * sample.bytes) return add_words(tensor.data, tensor.bytes);
    for (size_t i = 0; i < sample.pieces; ++i)
      add_words(tensor.data + (tensor.bytes - sample.bytes) * i / (sample.pieces - 1), sample.bytes);
  }
  uint64_t value() const { return value_; }

 private:
  void add_words(const std::byte* data, size_t bytes) {
    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, data + at, std::min(sizeof word, bytes - at));
      value_ = (value_ ^ word) * 0x100000001b3ULL;
      value_ ^= value_ >> 32;
    }
  }

  uint64_t value_ = 0xcbf29ce484222325ULL;
};

}  // namespace tessera
