#pragma once

#include <fmt/ranges.h>

#include <cstdint>
#include <string_view>

#include "tessera/ir/tensor.h"

namespace tessera {

/// FNV-1a, 64 bits (Fowler, Noll and Vo), by which ranks tell whether they have the same.
class Hash {
 public:
  void add(std::string_view text) {
    for (char letter : text) value_ = (value_ ^ static_cast<unsigned char>(letter)) * 0x100000001b3ULL;
    value_ = (value_ ^ 0xff) * 0x100000001b3ULL;  // "ab", "c" is not "a", "bc"
  }
  /// Type, extents, and up to 32 pieces of 64 bytes: weights of another training differ everywhere.
  void add(const Tensor& tensor) {
    constexpr size_t kPiece = 64, kPieces = 32;
    add(name_of(tensor.dtype));
    add(fmt::format("{}", fmt::join(tensor.dims, ",")));
    if (!tensor.data) return;
    const std::string_view bytes(reinterpret_cast<const char*>(tensor.data), tensor.bytes);
    for (size_t i = 0; i < kPieces; ++i) add(bytes.substr(bytes.size() * i / kPieces, kPiece));
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325ULL;
};

}  // namespace tessera
