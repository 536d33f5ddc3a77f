#include <omp.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>

#include "tessera/kernels/cpu/attention/few.h"
#include "tessera/kernels/cpu/library/scratch.h"
#include "tessera/kernels/registry.h"

namespace tessera::kernels {
namespace {

template <typename T, typename Mask>
class AttentionKernel : public Kernel {
 public:
  AttentionKernel(const AttentionShape& shape, bool with_mask, bool key_out, bool value_out, bool of_part)
      : shape_(shape),
        blocks_(shape, with_mask),
        value_lanes_(round_up(shape.value_width, attention_vector)),
        of_part_(of_part) {
    const int64_t heads = shape.batch * shape.kv_heads * shape.keys();
    if (shape.past > 0 && !key_out) key_at_ = shared_.add(sizeof(T) * heads * shape.width);
    if (shape.past > 0 && !value_out) value_at_ = shared_.add(sizeof(T) * heads * shape.value_width);
    if (FewQueries<T, Mask>::suit(shape)) {
      few_.emplace(shape, with_mask, of_part);
      few_at_ = shared_.add(few_->scratch_bytes());
      return;
    }
    queries_at_ = own_.add(sizeof(float) * shape.width * attention_lanes);
    scores_at_ = own_.add(sizeof(float) * attention_keys * attention_lanes);
    result_at_ = own_.add(sizeof(float) * attention_lanes * value_lanes_);
    if (converts) keys_at_ = own_.add(sizeof(float) * attention_keys * shape.width);
    if (copies_values()) values_at_ = own_.add(sizeof(float) * attention_keys * value_lanes_);
  }

  size_t scratch_bytes() const override { return shared_.bytes() + shape_.threads * own_.bytes(); }

  void run(const KernelArgs& args) override {
    const AttentionShape& s = shape_;
    auto out = [&](size_t index) { return index < args.outputs.size() ? args.out<T>(index) : nullptr; };
    const Side key = gather({args.in<T>(1), s.k}, attention_operand<T>(args, 4), out(1),
                            scratch_at<T>(args.scratch, key_at_), s.width);
    const Side value = gather({args.in<T>(2), s.v}, attention_operand<T>(args, 5), out(2),
                              scratch_at<T>(args.scratch, value_at_), s.value_width);
    if (few_) return few_->run(args, key, value, scratch_at(args.scratch, few_at_));
    const int64_t blocks = round_up(s.most_sharing() * s.queries, attention_lanes) / attention_lanes;
    const int64_t tasks = s.batch * s.kv_heads * blocks;
    const int64_t work = s.batch * s.q_heads * s.queries * s.keys() * s.width;
#pragma omp parallel for num_threads(team_for(work, s.threads)) schedule(dynamic, 1)
    for (int64_t task = 0; task < tasks; ++task) {
      const int64_t head = task / blocks, first = task % blocks * attention_lanes;
      const int64_t rows = s.count_sharing(head % s.kv_heads) * s.queries;
      const int64_t count = std::min(attention_lanes, rows - first);
      if (count <= 0) continue;
      void* scratch = scratch_at(args.scratch, shared_.bytes() + omp_get_thread_num() * own_.bytes());
      attend({head / s.kv_heads, head % s.kv_heads, first, count, round_up(count, attention_vector)}, args, key, value,
             scratch);
    }
  }

 private:
  using Side = AttentionSide<T>;

  static constexpr bool converts = is_narrow_float<T>;
  bool copies_values() const {
    return converts || value_lanes_ != shape_.value_width;
  }

  /// Without a cache, the fresh ones as they are (copied to the output if it is wanted); else both in one tensor.
  Side gather(const Side& fresh, const T* past, T* present, T* scratch, int64_t width) const {
    const AttentionShape& s = shape_;
    if (s.past == 0 && !present) return fresh;
    T* to = present ? present : scratch;
    const HeadsLayout layout{s.kv_heads * s.keys() * width, s.keys() * width, width};
#pragma omp parallel for num_threads(team_for(s.batch* layout.batch, s.threads)) schedule(static)
    for (int64_t head = 0; head < s.batch * s.kv_heads; ++head) {
      T* at = to + head * layout.head;
      if (s.past > 0) at = std::copy_n(past + head * s.past * width, s.past * width, at);
      const T* from = fresh.data + fresh.layout.at(head / s.kv_heads, head % s.kv_heads, 0);
      for (int64_t p = 0; p < s.fresh; ++p) at = std::copy_n(from + p * fresh.layout.position, width, at);
    }
    return {to, layout};
  }

  void attend(const AttentionBlock& block, const KernelArgs& args, const Side& key, const Side& value,
              void* scratch) const {
    const AttentionShape& s = shape_;
    float* queries = scratch_at<float>(scratch, queries_at_);
    float* scores = scratch_at<float>(scratch, scores_at_);
    float* result = scratch_at<float>(scratch, result_at_);
    std::array<float, attention_lanes> most, sums{}, corrections;
    most.fill(-std::numeric_limits<float>::infinity());
    std::fill_n(result, block.rows * value_lanes_, 0.0f);
    blocks_.load_turned(block, args.in<T>(0), s.q, s.width, s.scale, queries);
    const AttentionLanes<Mask> lanes =
        blocks_.lanes_of(block, attention_operand<Mask>(args, 3), attention_operand<int64_t>(args, 6));
    for (int64_t first = lanes.first_key; first < lanes.end_key; first += attention_keys) {
      const int64_t count = std::min(attention_keys, lanes.end_key - first);
      const T* key_rows = key.data + key.layout.at(block.batch, block.kv_head, first);
      const T* value_rows = value.data + value.layout.at(block.batch, block.kv_head, first);
      const float *keys, *values;
      int64_t key_stride = key.layout.position, value_stride = value.layout.position;
      if constexpr (converts) {
        float* tile = scratch_at<float>(scratch, keys_at_);
        load_attention_rows(key_rows, key_stride, count, s.width, s.width, tile);
        keys = tile;
        key_stride = s.width;
      } else {
        keys = key_rows;
      }
      attention_scores(keys, key_stride, count, s.width, queries, block.lanes, scores);
      if (s.softcap > 0) attention_softcap(scores, count * block.lanes, s.softcap);
      blocks_.apply_mask(block, lanes, first, count, scores);
      attention_softmax(scores, count, block.lanes, most.data(), sums.data(), corrections.data());
      if (copies_values()) {
        float* tile = scratch_at<float>(scratch, values_at_);
        load_attention_rows(value_rows, value_stride, count, s.value_width, value_lanes_, tile);
        values = tile;
        value_stride = value_lanes_;
      } else if constexpr (!converts) {
        values = value_rows;
      }
      if (lanes.all_see(first, count) || attention_is_finite(values, value_stride, count, s.value_width))
        attention_accumulate(scores, count, block.lanes, block.rows, values, value_stride, value_lanes_,
                             corrections.data(), result);
      else
        accumulate_seen(block, lanes, first, count, scores, values, value_stride, corrections.data(), result);
    }
    store_attention<T>(blocks_, block, args, result, value_lanes_, most.data(), sums.data(), of_part_);
  }

  // Row by row, over the keys that the row sees: the weight 0 of another key times infinity would be NaN, and whether
  // a row meets that key would depend on the rows beside it.
  void accumulate_seen(const AttentionBlock& block, const AttentionLanes<Mask>& lanes, int64_t first, int64_t count,
                       const float* weights, const float* values, int64_t stride, const float* corrections,
                       float* result) const {
    for (int64_t row = 0; row < block.rows; ++row) {
      const int64_t low = std::clamp<int64_t>(lanes.low[row] - first, 0, count);
      const int64_t high = std::clamp<int64_t>(lanes.high[row] - first, low, count);
      attention_accumulate(weights + low * block.lanes + row, high - low, block.lanes, 1, values + low * stride, stride,
                           value_lanes_, corrections + row, result + row * value_lanes_);
    }
  }

  AttentionShape shape_;
  AttentionBlocks<Mask> blocks_;
  int64_t value_lanes_;  // value_width, padded to whole vectors
  bool of_part_;         // of the keys: the first result is float32, and the rows' largest scores and sums are results
  ScratchPlan shared_;   // of all threads
  ScratchPlan own_;      // of one
  std::optional<FewQueries<T, Mask>> few_;
  size_t key_at_ = 0, value_at_ = 0, few_at_ = 0;
  size_t queries_at_ = 0, scores_at_ = 0, result_at_ = 0, keys_at_ = 0, values_at_ = 0;
};

std::unique_ptr<Kernel> prepare_attention(const PrepareContext& context) {
  const Node& node = context.node;
  const bool of_part = node.is("AttentionShard", "tessera") && context.has_output(3);
  if (context.has_output(3) && !of_part)
    fail("kernel",
         "{}: the output qk_matmul_output is not computed, since scores are never stored whole; spell the "
         "operator out as MatMul, Softmax, MatMul to see it",
         node.label());
  const AttentionShape shape = attention_shape(context);
  for (size_t i : {1, 2, 4, 5})
    if (context.has_input(i) && context.inputs[i].dtype != context.inputs[0].dtype)
      fail("kernel", "{}: operand {} is {}, but Q is {}; cast one of them", node.label(), i,
           name_of(context.inputs[i].dtype), name_of(context.inputs[0].dtype));
  const DType mask = context.has_input(3) ? context.inputs[3].dtype : DType::boolean;
  return dispatch(Types<float, BFloat16, Float16>(), node, context.inputs[0].dtype, [&]<typename T>() {
    return dispatch(Types<bool, T, float>(), node, mask, [&]<typename Mask>() -> std::unique_ptr<Kernel> {
      return std::make_unique<AttentionKernel<T, Mask>>(shape, context.has_input(3), context.has_output(1),
                                                        context.has_output(2), of_part);
    });
  });
}

}  // namespace

std::vector<KernelEntry> attention_kernels() {
  std::vector<KernelEntry> entries{
      {.op_type = "Attention",
       .domain = "",
       .prepare = prepare_attention,
       .strided = {0, 1, 2},
       .strides_result = true},
  };
  entries.push_back(entries.front());
  entries.back().op_type = "AttentionShard";
  entries.back().domain = "tessera";
  return entries;
}

}  // namespace tessera::kernels
