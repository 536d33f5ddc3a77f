#include <omp.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "tessera/kernels/cpu/attention/block.h"
#include "tessera/kernels/cpu/library/extents.h"
#include "tessera/kernels/cpu/library/parallel.h"
#include "tessera/kernels/cpu/library/scratch.h"
#include "tessera/kernels/registry.h"

// One head after the other, each by one thread: its queries pass the keys in blocks, as in Attention. With P the
// probabilities, computed again, and row the sums of G∘Y over a query's width (Dao et al. 2022, algorithm 4):
//
//     dV = Pᵀ·G      dS = P ∘ (G·Vᵀ - row)      dQ = scale·dS·K      dK = scale·dSᵀ·Q
//
// Where scores are capped, they are computed once more for the cap's derivative, which dS is multiplied by.
// Only one block's scores are in memory at once.
namespace tessera::kernels {
namespace {

enum GradientOperand : size_t { kQuery, kKey, kValue, kMask, kResult, kOfResult };

struct GradientShape {
  AttentionShape forward;
  HeadsLayout g;
  /// Where the gradients of queries, keys and values go; absent ones are not computed.
  std::array<HeadsLayout, 3> out;
  std::array<bool, 3> wanted;
};

/// Float32 rows of one head.
struct Rows {
  float* data;
  int64_t stride;
};

template <typename T, typename Mask>
class AttentionGradientKernel : public Kernel {
 public:
  AttentionGradientKernel(const GradientShape& shape, bool with_mask)
      : shape_(shape),
        blocks_(shape.forward, with_mask),
        width_(round_up(shape.forward.width, attention_vector)),
        value_width_(round_up(shape.forward.value_width, attention_vector)) {
    const int64_t keys = shape.forward.keys();
    const auto floats = [&](int64_t count) { return own_.add(sizeof(float) * static_cast<size_t>(count)); };
    turned_queries_at_ = floats(shape.forward.width * attention_lanes);
    queries_at_ = floats(attention_lanes * width_);
    turned_gradients_at_ = floats(shape.forward.value_width * attention_lanes);
    gradients_at_ = floats(attention_lanes * value_width_);
    weights_at_ = floats(keys * attention_lanes);
    scores_at_ = floats(attention_keys * attention_lanes);
    if (shape.forward.softcap > 0) capped_at_ = floats(attention_keys * attention_lanes);
    of_queries_at_ = floats(attention_lanes * width_);
    if (!in_place(width_, shape.forward.width)) keys_at_ = floats(keys * width_), of_keys_at_ = floats(keys * width_);
    if (!in_place(value_width_, shape.forward.value_width))
      values_at_ = floats(keys * value_width_), of_values_at_ = floats(keys * value_width_);
  }

  size_t scratch_bytes() const override { return shape_.forward.threads * own_.bytes(); }

  void run(const KernelArgs& args) override {
    const AttentionShape& s = shape_.forward;
    const int64_t heads = s.batch * s.q_heads;
    const int64_t work = heads * s.queries * s.keys() * (s.width + s.value_width);
#pragma omp parallel for num_threads(team_for(work, s.threads)) schedule(dynamic, 1)
    for (int64_t head = 0; head < heads; ++head)
      run_head(args, head / s.q_heads, head % s.q_heads,
               scratch_at(args.scratch, static_cast<size_t>(omp_get_thread_num()) * own_.bytes()));
  }

 private:
  // Whether products can read and add to rows where they are.
  static bool in_place(int64_t padded, int64_t width) {
    return std::is_same_v<T, float> && padded == width;
  }

  const T* row_of(const KernelArgs& args, GradientOperand operand, const HeadsLayout& layout, int64_t batch,
                  int64_t head) const {
    return args.in<T>(operand) + layout.at(batch, head, 0);
  }

  // The rows of a head's keys or values.
  Rows rows_in(const T* from, const HeadsLayout& layout, int64_t width, int64_t padded, float* scratch) const {
    if constexpr (std::is_same_v<T, float>)
      if (in_place(padded, width)) return {const_cast<float*>(from), layout.position};
    load_attention_rows(from, layout.position, shape_.forward.keys(), width, padded, scratch);
    return {scratch, padded};
  }

  // Zeros, to which the gradients of a head's keys or values are added.
  Rows rows_out(const KernelArgs& args, size_t result, int64_t batch, int64_t head, int64_t width, int64_t padded,
                float* scratch) const {
    if (!shape_.wanted[result]) return {nullptr, 0};
    Rows rows{scratch, padded};
    if constexpr (std::is_same_v<T, float>)
      if (in_place(padded, width))
        rows = {args.out<T>(result) + shape_.out[result].at(batch, head, 0), shape_.out[result].position};
    for (int64_t j = 0; j < shape_.forward.keys(); ++j) std::fill_n(rows.data + j * rows.stride, padded, 0.0f);
    return rows;
  }

  void store_rows(const KernelArgs& args, size_t result, int64_t batch, int64_t head, const Rows& rows, int64_t width,
                  int64_t padded) const {
    if (!rows.data || in_place(padded, width)) return;
    T* to = args.out<T>(result) + shape_.out[result].at(batch, head, 0);
    for (int64_t j = 0; j < shape_.forward.keys(); ++j)
      for (int64_t d = 0; d < width; ++d)
        to[j * shape_.out[result].position + d] = static_cast<T>(rows.data[j * rows.stride + d]);
  }

  void run_head(const KernelArgs& args, int64_t batch, int64_t head, void* scratch) const {
    const AttentionShape& s = shape_.forward;
    const int64_t kv_head = head / s.place.group;
    const Rows keys =
        rows_in(row_of(args, kKey, s.k, batch, kv_head), s.k, s.width, width_, scratch_at<float>(scratch, keys_at_));
    const Rows values = rows_in(row_of(args, kValue, s.v, batch, kv_head), s.v, s.value_width, value_width_,
                                scratch_at<float>(scratch, values_at_));
    const Rows of_keys = rows_out(args, 1, batch, head, s.width, width_, scratch_at<float>(scratch, of_keys_at_));
    const Rows of_values =
        rows_out(args, 2, batch, head, s.value_width, value_width_, scratch_at<float>(scratch, of_values_at_));
    for (int64_t first = 0; first < s.queries; first += attention_lanes) {
      const int64_t rows = std::min(attention_lanes, s.queries - first);
      run_block({batch, kv_head, head % s.place.group * s.queries + first, rows, round_up(rows, attention_vector)},
                args, keys, values, of_keys, of_values, scratch);
    }
    store_rows(args, 1, batch, head, of_keys, s.width, width_);
    store_rows(args, 2, batch, head, of_values, s.value_width, value_width_);
  }

  // Scores as they are before the mask.
  void scores_of(const Rows& keys, int64_t first, int64_t count, const float* turned_queries, int64_t lanes,
                 float* scores) const {
    const AttentionShape& s = shape_.forward;
    attention_scores(keys.data + first * keys.stride, keys.stride, count, s.width, turned_queries, lanes, scores);
    if (s.softcap > 0) attention_softcap(scores, count * lanes, s.softcap);
  }

  void run_block(const AttentionBlock& block, const KernelArgs& args, const Rows& keys, const Rows& values,
                 const Rows& of_keys, const Rows& of_values, void* scratch) const {
    const AttentionShape& s = shape_.forward;
    float* turned_queries = scratch_at<float>(scratch, turned_queries_at_);
    float* queries = scratch_at<float>(scratch, queries_at_);
    float* turned_gradients = scratch_at<float>(scratch, turned_gradients_at_);
    float* gradients = scratch_at<float>(scratch, gradients_at_);
    float* weights = scratch_at<float>(scratch, weights_at_);
    float* scores = scratch_at<float>(scratch, scores_at_);
    float* of_queries = scratch_at<float>(scratch, of_queries_at_);
    blocks_.load_turned(block, args.in<T>(kQuery), s.q, s.width, s.scale, turned_queries);
    blocks_.load_turned(block, args.in<T>(kOfResult), shape_.g, s.value_width, 1, turned_gradients);
    std::array<float, attention_lanes> row_sums{};
    for (int64_t row = 0; row < block.rows; ++row) {
      const T* q = args.in<T>(kQuery) + blocks_.at(s.q, block, row);
      const T* g = args.in<T>(kOfResult) + blocks_.at(shape_.g, block, row);
      const T* y = args.in<T>(kResult) + blocks_.at(s.y, block, row);
      load_attention_rows(q, 0, 1, s.width, width_, queries + row * width_);
      load_attention_rows(g, 0, 1, s.value_width, value_width_, gradients + row * value_width_);
      for (int64_t d = 0; d < s.value_width; ++d) row_sums[row] += static_cast<float>(g[d]) * static_cast<float>(y[d]);
    }

    const Mask* mask = args.in<Mask>(kMask);
    const AttentionLanes<Mask> lanes = blocks_.lanes_of(block, mask, nullptr);
    std::array<float, attention_lanes> most, sums{};
    most.fill(-std::numeric_limits<float>::infinity());
    const auto for_each_tile = [&](const auto& visit) {
      for (int64_t first = lanes.first_key; first < lanes.end_key; first += attention_keys)
        visit(first, std::min(attention_keys, lanes.end_key - first), weights + first * block.lanes);
    };
    for_each_tile([&](int64_t first, int64_t count, float* tile) {
      scores_of(keys, first, count, turned_queries, block.lanes, tile);
      blocks_.apply_mask(block, lanes, first, count, tile);
      attention_most(tile, count, block.lanes, most.data());
    });
    for_each_tile([&](int64_t, int64_t count, float* tile) {
      attention_weights(tile, count, block.lanes, most.data(), sums.data());
    });
    std::fill_n(of_queries, block.rows * width_, 0.0f);
    for_each_tile([&](int64_t first, int64_t count, float* tile) {
      attention_scores(values.data + first * values.stride, values.stride, count, s.value_width, turned_gradients,
                       block.lanes, scores);
      attention_score_gradients(tile, scores, count, block.lanes, sums.data(), row_sums.data(), s.scale);
      if (s.softcap > 0) {
        float* capped = scratch_at<float>(scratch, capped_at_);
        scores_of(keys, first, count, turned_queries, block.lanes, capped);
        attention_softcap_gradient(scores, capped, count * block.lanes, s.softcap);
      }
      if (of_values.data)
        attention_add_outer(tile, count, block.lanes, block.rows, gradients, value_width_,
                            of_values.data + first * of_values.stride, of_values.stride);
      if (of_keys.data)
        attention_add_outer(scores, count, block.lanes, block.rows, queries, width_,
                            of_keys.data + first * of_keys.stride, of_keys.stride);
      if (shape_.wanted[0])
        attention_add(scores, count, block.lanes, block.rows, keys.data + first * keys.stride, keys.stride, width_,
                      of_queries);
    });
    if (!shape_.wanted[0]) return;
    for (int64_t row = 0; row < block.rows; ++row) {
      T* to = args.out<T>() + blocks_.at(shape_.out[0], block, row);
      for (int64_t d = 0; d < s.width; ++d) to[d] = static_cast<T>(of_queries[row * width_ + d]);
    }
  }

  GradientShape shape_;
  AttentionBlocks<Mask> blocks_;
  int64_t width_, value_width_;  // padded to whole vectors
  ScratchPlan own_;              // of one thread
  size_t turned_queries_at_ = 0, queries_at_ = 0, turned_gradients_at_ = 0, gradients_at_ = 0, weights_at_ = 0,
         scores_at_ = 0, capped_at_ = 0, of_queries_at_ = 0, keys_at_ = 0, values_at_ = 0, of_keys_at_ = 0,
         of_values_at_ = 0;
};

void require_heads(const Node& node, const TensorDesc& desc, const Dims& wanted, std::string_view what) {
  const bool is_empty = desc.count() == 0 && count_of(wanted) == 0;  // widths mean nothing then
  if (desc.dims != wanted && !is_empty)
    fail("kernel", "{}: {} has extents {}; they must be {}", node.label(), what, text_of(desc.dims), text_of(wanted));
}

std::unique_ptr<Kernel> prepare_attention_gradient(const PrepareContext& context) {
  const Node& node = context.node;
  const auto& in = context.inputs;
  PrepareContext forward{
      .node = node, .inputs = {in.begin(), in.begin() + kResult}, .outputs = {in.at(kResult)}, .known = {}};
  forward.threads = context.threads;
  GradientShape shape{.forward = attention_shape(forward), .g = heads_of(node, in.at(kOfResult), "").layout};
  const AttentionShape& s = shape.forward;
  for (GradientOperand operand : {kResult, kOfResult})
    require_heads(node, in[operand], {s.batch, s.q_heads, s.queries, s.value_width},
                  operand == kResult ? "the result" : "the result's gradient");
  const std::array<Dims, 3> wanted = {Dims{s.batch, s.q_heads, s.queries, s.width},
                                      {s.batch, s.q_heads, s.keys(), s.width},
                                      {s.batch, s.q_heads, s.keys(), s.value_width}};
  for (size_t result = 0; result < shape.out.size(); ++result) {
    shape.wanted[result] = context.has_output(result);
    if (shape.wanted[result]) require_heads(node, context.outputs[result], wanted[result], "a gradient");
    if (shape.wanted[result]) shape.out[result] = heads_of(node, context.outputs[result], "").layout;
  }
  const DType mask = context.has_input(kMask) ? in[kMask].dtype : DType::boolean;
  return dispatch(Types<float, BFloat16, Float16>(), node, in[kQuery].dtype, [&]<typename T>() {
    return dispatch(Types<bool, T, float>(), node, mask, [&]<typename Mask>() -> std::unique_ptr<Kernel> {
      return std::make_unique<AttentionGradientKernel<T, Mask>>(shape, context.has_input(kMask));
    });
  });
}

}  // namespace

std::vector<KernelEntry> attention_gradient_kernels() {
  return {{.op_type = "AttentionGradient",
           .domain = "tessera",
           .prepare = prepare_attention_gradient,
           .strided = {kQuery, kKey, kValue, kResult, kOfResult},
           .strides_result = true}};
}

}  // namespace tessera::kernels
