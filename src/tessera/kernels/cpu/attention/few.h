#pragma once

#include <algorithm>
#include <array>
#include <limits>

#include "tessera/kernels/cpu/attention/block.h"
#include "tessera/kernels/cpu/attention/rows.h"
#include "tessera/kernels/cpu/library/parallel.h"
#include "tessera/kernels/cpu/library/scratch.h"

/// Attention of few queries, as a step of decoding has them. Keys are cut into parts of fixed length; threads take
/// parts of heads, so that all have work where heads are few. A part p has for each query its largest score m, the sum
/// s of the weights exp(score - m), and the sum r of values so weighted. What the parts say together is
///
///     m = max m[p]    s = Σ s[p]·exp(m[p] - m)    r = Σ r[p]·exp(m[p] - m)
///
/// Where the parts are cut depends on nothing but the keys' numbers.
namespace tessera::kernels {

template <typename T, typename Mask>
class FewQueries {
 public:
  /// More queries fill the lanes of tiles. The choice is the same however many heads share a key head, so that a query
  /// has the same bits wherever its head is computed.
  static bool suit(const AttentionShape& shape) { return shape.queries <= most_queries; }

  FewQueries(const AttentionShape& shape, bool with_mask, bool of_part)
      : shape_(shape),
        blocks_(shape, with_mask),
        width_(round_up(shape.width, attention_row_vector)),
        value_width_(round_up(shape.value_width, attention_row_vector)),
        rows_(std::min(attention_lanes, shape.most_sharing() * shape.queries)),
        blocks_a_head_(rows_ == 0 ? 0 : (shape.most_sharing() * shape.queries + rows_ - 1) / rows_),
        parts_((shape.keys() + part_keys - 1) / part_keys),
        of_part_(of_part) {
    const int64_t all_rows = shape.batch * shape.kv_heads * blocks_a_head_ * std::max<int64_t>(parts_, 1) * rows_;
    most_at_ = shared_.add(sizeof(float) * all_rows);
    sums_at_ = shared_.add(sizeof(float) * all_rows);
    results_at_ = shared_.add(sizeof(float) * all_rows * value_width_);
    queries_at_ = own_.add(sizeof(float) * rows_ * width_);
    scores_at_ = own_.add(sizeof(float) * rows_ * part_keys);
    if (converts || is_padded()) values_at_ = own_.add(sizeof(float) * attention_keys * value_width_);
  }

  size_t scratch_bytes() const { return shared_.bytes() + shape_.threads * own_.bytes(); }

  void run(const KernelArgs& args, const AttentionSide<T>& key, const AttentionSide<T>& value, void* scratch) const {
    const AttentionShape& s = shape_;
    const int64_t parts = parts_of(attention_operand<int64_t>(args, 6));
    const int64_t blocks = s.batch * s.kv_heads * blocks_a_head_, tasks = blocks * parts;
    const int64_t work = blocks * rows_ * std::min(s.keys(), parts * part_keys) * s.width;
    for_stream(tasks, work, s.threads, [&](int64_t task, int64_t member) {
      void* own = scratch_at(scratch, shared_.bytes() + member * own_.bytes());
      attend({block_of(task / parts), task, task % parts}, args, key, value, scratch, own);
    });
    for_ranges(blocks, blocks * parts * rows_ * value_width_, s.threads, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) join(block_of(block), block * parts, parts, args, scratch);
    });
  }

 private:
  static constexpr int64_t most_queries = 4;
  static constexpr int64_t part_keys = 256;
  static constexpr bool converts = is_narrow_float<T>;

  struct Task {
    AttentionBlock block;
    int64_t number, part;
  };

  bool is_padded() const { return value_width_ != shape_.value_width; }

  /// The parts that hold keys of any text.
  int64_t parts_of(const int64_t* lengths) const {
    int64_t keys = lengths ? 0 : shape_.keys();
    for (int64_t b = 0; lengths && b < shape_.batch; ++b) keys = std::max(keys, lengths[b] - shape_.place.first_key);
    return std::clamp<int64_t>((keys + part_keys - 1) / part_keys, 0, parts_);
  }

  AttentionBlock block_of(int64_t number) const {
    const int64_t head = number / blocks_a_head_, kv_head = head % shape_.kv_heads;
    const int64_t first = number % blocks_a_head_ * rows_;
    const int64_t rows = std::clamp<int64_t>(shape_.count_sharing(kv_head) * shape_.queries - first, 0, rows_);
    return {head / shape_.kv_heads, kv_head, first, rows, rows};
  }

  void attend(const Task& task, const KernelArgs& args, const AttentionSide<T>& key, const AttentionSide<T>& value,
              void* shared, void* own) const {
    const AttentionBlock& block = task.block;
    float* most = scratch_at<float>(shared, most_at_) + task.number * rows_;
    float* sums = scratch_at<float>(shared, sums_at_) + task.number * rows_;
    float* results = scratch_at<float>(shared, results_at_) + task.number * rows_ * value_width_;
    float* scores = scratch_at<float>(own, scores_at_);
    std::fill_n(most, block.rows, -std::numeric_limits<float>::infinity());
    std::fill_n(sums, block.rows, 0.0F);
    std::fill_n(results, block.rows * value_width_, 0.0F);
    const AttentionLanes<Mask> lanes =
        blocks_.lanes_of(block, attention_operand<Mask>(args, 3), attention_operand<int64_t>(args, 6));
    // At a multiple of the lanes of sums, wherever other rows of the block begin; what a row does not see is hidden.
    const int64_t begin =
        std::max(lanes.first_key / attention_row_vector * attention_row_vector, task.part * part_keys);
    const int64_t end = std::min(lanes.end_key, (task.part + 1) * part_keys);
    if (begin >= end) return;
    load_queries(block, args.in<T>(0), scratch_at<float>(own, queries_at_));
    for (int64_t first = begin; first < end; first += attention_keys)
      score(block, key, first, std::min(attention_keys, end - first), own, scores + (first - begin));
    for (int64_t row = 0; row < block.rows; ++row) {
      float* of_row = scores + row * part_keys;
      if (shape_.softcap > 0) attention_softcap(of_row, end - begin, shape_.softcap);
      hide(lanes, row, begin, end, of_row);
      sums[row] = attention_row_weights(of_row, end - begin, most[row]);
    }
    for (int64_t first = begin; first < end; first += attention_keys)
      add(block, lanes, value, first, std::min(attention_keys, end - first), own, scores + (first - begin), results);
  }

  /// Rows [width rounded up], scaled, zeros behind the width.
  void load_queries(const AttentionBlock& block, const T* from, float* queries) const {
    for (int64_t row = 0; row < block.rows; ++row, queries += width_) {
      load_attention_rows(from + blocks_.at(shape_.q, block, row), 0, 1, shape_.width, width_, queries);
      for (int64_t d = 0; d < shape_.width; ++d) queries[d] *= shape_.scale;
    }
  }

  void score(const AttentionBlock& block, const AttentionSide<T>& key, int64_t first, int64_t count, void* own,
             float* scores) const {
    attention_row_scores(key.data + key.layout.at(block.batch, block.kv_head, first), key.layout.position, count,
                         shape_.width, scratch_at<float>(own, queries_at_), block.rows, scores, part_keys);
  }

  /// Hides keys begin … end - 1 where the row does not see them, or its mask says so.
  void hide(const AttentionLanes<Mask>& lanes, int64_t row, int64_t begin, int64_t end, float* scores) const {
    constexpr float hidden = -std::numeric_limits<float>::infinity();
    if (const Mask* mask = lanes.mask[row])
      for (int64_t j = begin; j < std::min(end, shape_.mask_keys); ++j) {
        if constexpr (std::is_same_v<Mask, bool>)
          scores[j - begin] = mask[j] ? scores[j - begin] : hidden;
        else
          scores[j - begin] += static_cast<float>(mask[j]);
      }
    const int64_t low = std::clamp(lanes.low[row], begin, end), high = std::clamp(lanes.high[row], low, end);
    std::fill(scores, scores + (low - begin), hidden);
    std::fill(scores + (high - begin), scores + (end - begin), hidden);
  }

  void add(const AttentionBlock& block, const AttentionLanes<Mask>& lanes, const AttentionSide<T>& value, int64_t first,
           int64_t count, void* own, const float* weights, float* results) const {
    const T* rows = value.data + value.layout.at(block.batch, block.kv_head, first);
    const bool all_see = lanes.all_see(first, count);
    if (all_see && !is_padded()) {
      attention_row_sums(weights, part_keys, count, block.rows, rows, value.layout.position, value_width_, results);
      return;
    }
    const float* values = nullptr;
    int64_t stride = value.layout.position;
    if constexpr (!converts) values = rows;
    if (converts || is_padded()) {
      float* tile = scratch_at<float>(own, values_at_);
      load_attention_rows(rows, stride, count, shape_.value_width, value_width_, tile);
      values = tile;
      stride = value_width_;
    }
    if (all_see || attention_is_finite(values, stride, count, shape_.value_width)) {
      attention_row_sums(weights, part_keys, count, block.rows, values, stride, value_width_, results);
      return;
    }
    // The weight 0 of a key that a row does not see, times infinity, would be NaN.
    for (int64_t row = 0; row < block.rows; ++row) {
      const int64_t low = std::clamp<int64_t>(lanes.low[row] - first, 0, count);
      const int64_t high = std::clamp<int64_t>(lanes.high[row] - first, low, count);
      attention_row_sums(weights + row * part_keys + low, part_keys, high - low, 1, values + low * stride, stride,
                         value_width_, results + row * value_width_);
    }
  }

  /// Parts first … first + parts - 1 are of the block's keys; the first takes the others in.
  void join(const AttentionBlock& block, int64_t first, int64_t parts, const KernelArgs& args, void* shared) const {
    float* most = scratch_at<float>(shared, most_at_) + first * rows_;
    float* sums = scratch_at<float>(shared, sums_at_) + first * rows_;
    float* results = scratch_at<float>(shared, results_at_) + first * rows_ * value_width_;
    if (parts == 0) {
      std::fill_n(most, block.rows, -std::numeric_limits<float>::infinity());
      std::fill_n(sums, block.rows, 0.0F);
      std::fill_n(results, block.rows * value_width_, 0.0F);
    }
    for (int64_t row = 0; parts > 1 && row < block.rows; ++row) {
      float all = most[row];
      for (int64_t part = 1; part < parts; ++part) all = std::max(all, most[part * rows_ + row]);
      const float shift = all == -std::numeric_limits<float>::infinity() ? 0.0F : all;
      for (int64_t part = 0; part < parts; ++part) {
        const int64_t at = part * rows_ + row;
        const float factor = attention_row_exp(most[at] - shift);
        sums[row] = part == 0 ? sums[row] * factor : sums[row] + sums[at] * factor;
        float* to = results + row * value_width_;
        for (int64_t d = 0; d < value_width_; ++d)
          to[d] = part == 0 ? to[d] * factor : to[d] + results[at * value_width_ + d] * factor;
      }
      most[row] = all;
    }
    store_attention<T>(blocks_, block, args, results, value_width_, most, sums, of_part_);
  }

  AttentionShape shape_;
  AttentionBlocks<Mask> blocks_;
  int64_t width_, value_width_;  // rounded up to whole vectors
  int64_t rows_;                 // of a block at most
  int64_t blocks_a_head_;        // of queries that share it
  int64_t parts_;                // of all keys
  bool of_part_;                 // the operand keys are a part of the keys themselves (AttentionShard)
  ScratchPlan shared_;           // of all threads
  ScratchPlan own_;              // of one
  size_t most_at_ = 0, sums_at_ = 0, results_at_ = 0;
  size_t queries_at_ = 0, scores_at_ = 0, values_at_ = 0;
};

}  // namespace tessera::kernels
