#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tessera/kernels/cpu/attention/shape.h"
#include "tessera/kernels/cpu/attention/tile.h"
#include "tessera/kernels/cpu/elementwise/via_float32.h"
#include "tessera/kernels/cpu/library/dispatch.h"

/// How Attention and its gradient cut their work: into blocks of queries that pass the keys together, tile by tile.
namespace tessera::kernels {

inline int64_t round_up(int64_t count, int64_t to) {
  return (count + to - 1) / to * to;
}

/// Rows [first, first + rows) of the heads·queries rows that share a key head, one lane each.
struct AttentionBlock {
  int64_t batch, kv_head, first, rows, lanes;
};

/// The keys that a query sees, [low, high), and its row of the mask, per lane of a block.
template <typename Mask>
struct AttentionLanes {
  std::array<int64_t, attention_lanes> low, high;
  std::array<const Mask*, attention_lanes> mask;
  int64_t first_key, end_key;  ///< of all lanes together
  int64_t all_from, all_to;    ///< keys that every lane sees

  bool all_see(int64_t first, int64_t count) const { return first >= all_from && first + count <= all_to; }
};

/// The mask is bool, or added to the scores.
template <typename Mask>
class AttentionBlocks {
 public:
  AttentionBlocks(const AttentionShape& shape, bool with_mask) : shape_(shape), with_mask_(with_mask) {}

  const AttentionShape& shape() const { return shape_; }

  int64_t query_head(const AttentionBlock& block, int64_t row) const {
    return shape_.first_sharing(block.kv_head) + (block.first + row) / shape_.queries;
  }
  int64_t query_position(const AttentionBlock& block, int64_t row) const {
    return (block.first + row) % shape_.queries;
  }
  /// The row's first element in a tensor of query heads.
  int64_t at(const HeadsLayout& layout, const AttentionBlock& block, int64_t row) const {
    return layout.at(block.batch, query_head(block, row), query_position(block, row));
  }

  /// `mask`: the operand's elements; `lengths`: the keys of each sequence, or null.
  AttentionLanes<Mask> lanes_of(const AttentionBlock& block, const Mask* mask, const int64_t* lengths) const {
    const AttentionShape& s = shape_;
    const int64_t length = lengths ? lengths[block.batch] - s.place.first_key : s.keys();
    // The keys here that come before the first query of all, and before the first one here.
    const int64_t before_all = s.past > 0 ? s.past : lengths ? length - s.place.queries : -s.place.first_key;
    const int64_t before = before_all + s.place.first_query;
    AttentionLanes<Mask> lanes;
    lanes.low.fill(0);
    lanes.high.fill(0);
    lanes.first_key = s.keys();
    lanes.end_key = lanes.all_from = 0;
    lanes.all_to = s.keys();
    for (int64_t row = 0; row < block.rows; ++row) {
      const int64_t position = query_position(block, row), here = before + position;
      int64_t low = 0, high = std::min({s.keys(), s.mask_keys, length});
      if (s.causal) high = std::min(high, here + 1);
      if (s.right_window >= 0) high = std::min(high, here + s.right_window + 1);
      if (s.left_window >= 0) low = std::max(low, here - s.left_window);
      lanes.low[row] = low;
      lanes.high[row] = high;
      if (low < high) {
        lanes.first_key = std::min(lanes.first_key, low);
        lanes.end_key = std::max(lanes.end_key, high);
      }
      lanes.all_from = std::max(lanes.all_from, low);
      lanes.all_to = std::min(lanes.all_to, high);
      lanes.mask[row] = with_mask_ ? mask + at(s.mask, block, row) : nullptr;
    }
    return lanes;
  }

  /// Masks `scores` [count, lanes] of the keys from `first` on.
  void apply_mask(const AttentionBlock& block, const AttentionLanes<Mask>& lanes, int64_t first, int64_t count,
                  float* scores) const {
    constexpr float masked = -std::numeric_limits<float>::infinity();
    if (with_mask_) {
      const int64_t covered = std::min(count, shape_.mask_keys - first);
      for (int64_t j = 0; j < covered; ++j)
        for (int64_t row = 0; row < block.rows; ++row) {
          float& score = scores[j * block.lanes + row];
          if constexpr (std::is_same_v<Mask, bool>)
            score = lanes.mask[row][first + j] ? score : masked;
          else
            score += static_cast<float>(lanes.mask[row][first + j]);
        }
    }
    if (lanes.all_see(first, count)) return;
    std::array<int32_t, attention_lanes> low, high;
    for (int64_t lane = 0; lane < block.lanes; ++lane) {
      low[lane] = static_cast<int32_t>(std::clamp<int64_t>(lanes.low[lane] - first, 0, count));
      high[lane] = static_cast<int32_t>(std::clamp<int64_t>(lanes.high[lane] - first, 0, count));
    }
    attention_hide(scores, count, block.lanes, low.data(), high.data());
  }

  /// The block's rows of a tensor of query heads times `factor`, as [width, lanes]; lanes beyond the rows are zero.
  template <typename T>
  void load_turned(const AttentionBlock& block, const T* from, const HeadsLayout& layout, int64_t width, float factor,
                   float* turned) const {
    std::fill_n(turned, width * block.lanes, 0.0f);
    for (int64_t row = 0; row < block.rows; ++row) {
      const T* elements = from + at(layout, block, row);
      for (int64_t d = 0; d < width; ++d) turned[d * block.lanes + row] = static_cast<float>(elements[d]) * factor;
    }
  }

 private:
  AttentionShape shape_;
  bool with_mask_;
};

/// All keys, or all values: the cached ones and the fresh ones.
template <typename T>
struct AttentionSide {
  const T* data;
  HeadsLayout layout;
};

/// An operand that a node may lack; null if it does.
template <typename E>
const E* attention_operand(const KernelArgs& args, size_t index) {
  return index < args.inputs.size() ? args.in<E>(index) : nullptr;
}

/// What a query head's sink adds to the sum of weights of a row whose largest score is `most`; 0 without sinks. Any
/// number will do for a row without keys, which is zero.
template <typename T>
float sink_share(const AttentionShape& shape, const KernelArgs& args, int64_t head, float most) {
  if (shape.sinks == DType::undefined) return 0;
  if (most == -std::numeric_limits<float>::infinity()) return 1;
  const float sink = shape.sinks == DType::float32 ? args.in<float>(attention_sinks)[head]
                                                   : static_cast<float>(args.in<T>(attention_sinks)[head]);
  return std::exp(sink - most);
}

/// Writes a block's rows of the result: sums of weighted values [rows, value_lanes], divided by the weights' `sums`.
/// `of_part`: the result is float32, and the rows' largest scores and sums are results, too (AttentionShard).
template <typename T, typename Mask>
void store_attention(const AttentionBlocks<Mask>& blocks, const AttentionBlock& block, const KernelArgs& args,
                     const float* result, int64_t value_lanes, const float* most, const float* sums, bool of_part) {
  const AttentionShape& s = blocks.shape();
  const auto store = [&]<typename E>(E* y) {
    for (int64_t row = 0; row < block.rows; ++row) {
      // A query that sees no key gives zeros (ONNX Attention, fully masked rows).
      const float all = sums[row] + sink_share<T>(s, args, blocks.query_head(block, row), most[row]);
      const float divisor = all == 0 ? 1.0f : all;
      E* to = y + blocks.at(s.y, block, row);
      for (int64_t d = 0; d < s.value_width; ++d) to[d] = static_cast<E>(result[row * value_lanes + d] / divisor);
    }
  };
  if (!of_part) return store(args.out<T>());
  store(args.out<float>());
  for (int64_t row = 0; row < block.rows; ++row) {
    const int64_t at =
        (block.batch * s.q_heads + blocks.query_head(block, row)) * s.queries + blocks.query_position(block, row);
    args.out<float>(3)[at] = most[row];
    args.out<float>(4)[at] = sums[row];
  }
}

/// `count` rows, `stride` apart, as float32 rows `padded` apart; the padding after a row is zero.
template <typename T>
void load_attention_rows(const T* from, int64_t stride, int64_t count, int64_t width, int64_t padded, float* to) {
  for (int64_t j = 0; j < count; ++j) {
    if constexpr (is_narrow_float<T>)
      widen_row(from + j * stride, to + j * padded, width);
    else
      std::copy_n(from + j * stride, width, to + j * padded);
    std::fill_n(to + j * padded + width, padded - width, 0.0f);
  }
}

}  // namespace tessera::kernels
