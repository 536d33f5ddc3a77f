#include "tessera/kernels/cpu/quantized/block_weight.h"

#include <algorithm>
#include <cstring>

#include "tessera/base/float16.h"
#include "tessera/kernels/cpu/library/dispatch.h"

namespace tessera::kernels {
namespace {

float float_at(DType dtype, const void* data, int64_t i) {
  if (dtype == DType::float16) return static_cast<float>(static_cast<const Float16*>(data)[i]);
  if (dtype == DType::bfloat16) return static_cast<float>(static_cast<const BFloat16*>(data)[i]);
  return static_cast<const float*>(data)[i];
}

/// Code `i`, not yet signed.
uint32_t raw_code_at(const void* data, int bits, int64_t i) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  return bits == 8 ? bytes[i] : (bytes[i / 2] >> (i % 2 * 4)) & 15;
}

/// The strip's block: columns first … first + columns - 1, from row `row`.
class BlockPacker {
 public:
  BlockPacker(const BlockWeight& weight, const BlockSource& source)
      : weight_(weight), source_(source), half_(weight.bits == 8 ? 0x80 : 8) {
    for (int shift = 0; shift < 32; shift += weight.bits) halves_ |= source.has_sign ? 0 : half_ << shift;
  }

  void pack(int64_t strip, int64_t block, std::byte* out) const {
    const int64_t first = strip * BlockWeight::strip, columns = std::min(BlockWeight::strip, weight_.n - first);
    std::memset(out, 0, static_cast<size_t>(weight_.block_bytes()));
    auto* codes = reinterpret_cast<uint32_t*>(out);
    for (int64_t row = 0; row < weight_.block; row += weight_.group(), codes += BlockWeight::strip)
      for (int64_t j = 0; j < columns; ++j) codes[j] = group_at(block * weight_.block + row, first + j);
    auto* scales = reinterpret_cast<float*>(out + weight_.code_bytes());
    for (int64_t j = 0; j < columns; ++j)
      scales[j] =
          float_at(source_.scale_type, source_.scales, block * source_.scale_row + (first + j) * source_.scale_column);
    std::byte* zeros = reinterpret_cast<std::byte*>(scales + BlockWeight::strip);
    for (int64_t j = 0; j < columns; ++j) {
      const int64_t at = block * source_.zero_row + (first + j) * source_.zero_column;
      if (weight_.zeros == BlockWeight::Zeros::floats)
        reinterpret_cast<float*>(zeros)[j] =
            float_at(source_.zero_type, source_.zeros, at) - static_cast<float>(source_.has_sign ? 0 : half_);
      if (weight_.zeros == BlockWeight::Zeros::integers)
        reinterpret_cast<int8_t*>(zeros)[j] = signed_code(raw_code_at(source_.zeros, weight_.bits, at));
    }
  }

 private:
  int8_t signed_code(uint32_t code) const {
    const uint32_t shifted = (source_.has_sign ? code : code ^ half_) << (8 - weight_.bits);
    return static_cast<int8_t>(static_cast<int8_t>(shifted) >> (8 - weight_.bits));
  }

  /// The codes of a group of rows; those beyond the last row are left zero.
  uint32_t group_at(int64_t row, int64_t column) const {
    const int64_t rows = std::clamp<int64_t>(weight_.k - row, 0, weight_.group());
    const int64_t at = row * source_.code_row + column * source_.code_column;
    uint32_t group = 0;
    if (source_.code_row == 1 && rows == weight_.group() && at * weight_.bits % 8 == 0) {
      std::memcpy(&group, static_cast<const std::byte*>(source_.codes) + at * weight_.bits / 8, sizeof group);
      return group ^ halves_;
    }
    for (int64_t i = 0; i < rows; ++i) {
      const uint32_t code = raw_code_at(source_.codes, weight_.bits, at + i * source_.code_row);
      group |= (source_.has_sign ? code : code ^ half_) << (i * weight_.bits);
    }
    return group;
  }

  BlockWeight weight_;
  BlockSource source_;
  uint32_t half_, halves_ = 0;
};

}  // namespace

void pack_blocks(const BlockWeight& weight, const BlockSource& source, std::byte* packed, int threads) {
  const BlockPacker packer(weight, source);
  const int64_t count = weight.strips() * weight.blocks();
#pragma omp parallel for num_threads(team_for(weight.bytes(), threads)) schedule(static)
  for (int64_t i = 0; i < count; ++i)
    packer.pack(i / weight.blocks(), i % weight.blocks(), packed + i * weight.block_bytes());
}

}  // namespace tessera::kernels
