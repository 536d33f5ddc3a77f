#pragma once

#include <fmt/ranges.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tessera/ir/tensor.h"

namespace tessera {

/// A 64-bit hash of bytes, read as 64-bit words that are dealt to lanes in turn. Bytes that differ in one word have
/// different hashes. As fast as memory: the lanes fill four of the widest registers.
uint64_t hash_of_bytes(const std::byte* data, size_t bytes);

/// A 64-bit hash by which ranks compare data: FNV-1a (Fowler, Noll and Vo) of text, and of hashes of elements.
class Hash {
 public:
  void add(std::string_view text) {
    for (char letter : text) value_ = (value_ ^ static_cast<unsigned char>(letter)) * 0x100000001b3ULL;
    value_ = (value_ ^ 0xff) * 0x100000001b3ULL;  // "ab", "c" is not "a", "bc"
  }
  void add(uint64_t word) {
    value_ = (value_ ^ word) * 0x100000001b3ULL;
    value_ ^= value_ >> 32;  // words that differ only in their last bits must not cancel
  }
  /// Type, extents and all elements.
  void add(const Tensor& tensor) {
    add_type(tensor);
    if (tensor.data) add(hash_of_bytes(tensor.data, tensor.bytes));
  }
  /// Type and extents.
  void add_type(const Tensor& tensor) {
    add(name_of(tensor.dtype));
    add(fmt::format("{}", fmt::join(tensor.dims, ",")));
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325ULL;
};

}  // namespace tessera
