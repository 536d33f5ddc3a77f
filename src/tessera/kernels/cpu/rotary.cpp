#include "tessera/base/error.h"
#include "tessera/kernels/cpu/dispatch.h"
#include "tessera/kernels/cpu/extents.h"
#include "tessera/kernels/cpu/families.h"

namespace tessera::kernels {
namespace {

/// X as [batch, positions, heads, width] by strides in elements; the last `width - rotated` elements pass.
struct Rotary {
  int64_t batch, heads, positions, width, rotated;
  int64_t batch_stride, head_stride, position_stride;
  bool interleaved;
  bool shared;         ///< one cache serves every batch
  int64_t cache_rows;  ///< rows of the caches that position_ids choose from; 0: the caches are per batch and position
  int threads;
};

Rotary rotary_of(const PrepareContext& context) {
  const Node& node = context.node;
  const Dims& x = context.inputs.at(0).dims;
  Rotary r{};
  if (x.size() == 4) {
    r = {x[0], x[1], x[2], x[3], 0, x[1] * x[2] * x[3], x[2] * x[3], x[3], false, false, 0, 0};
  } else {
    const int64_t heads = node.get_int("num_heads", 0);
    if (x.size() != 3 || (heads == 0 ? count_of(x) != 0 : x[2] % heads != 0))
      fail("kernel",
           "{}: X of extents {} is not [batch, heads, positions, width], nor [batch, positions, heads·width] "
           "with attribute 'num_heads' dividing the last one",
           node.label(), text_of(x));
    const int64_t width = heads == 0 ? 0 : x[2] / heads;
    r = {x[0], heads, x[1], width, 0, x[1] * x[2], width, x[2], false, false, 0, 0};
  }
  r.rotated = node.get_int("rotary_embedding_dim", 0);
  if (r.rotated == 0) r.rotated = r.width;
  r.interleaved = node.get_int("interleaved", 0) != 0;
  r.threads = context.threads;
  const Dims &cosine = context.inputs.at(1).dims, &sine = context.inputs.at(2).dims;
  const bool by_id = context.has_input(3);
  // One cache for all batches may say so by an extent of 1.
  r.shared = !by_id && cosine.size() == 3 && cosine[0] == 1;
  const Dims wanted = by_id ? Dims{cosine.empty() ? 0 : cosine[0], r.rotated / 2}
                            : Dims{r.shared ? 1 : r.batch, r.positions, r.rotated / 2};
  if (count_of(x) > 0 && (r.rotated % 2 != 0 || r.rotated > r.width || cosine != wanted || sine != wanted))
    fail("kernel", "{}: caches of extents {} and {} do not fit {} rotated elements of X {}", node.label(),
         text_of(cosine), text_of(sine), r.rotated, text_of(x));
  if (by_id) {
    r.cache_rows = cosine.empty() ? 0 : cosine[0];
    if (context.inputs[3].count() != r.batch * r.positions || context.inputs[3].dtype != DType::int64)
      fail("kernel", "{}: position_ids must be int64 [{}, {}]", node.label(), r.batch, r.positions);
  }
  return r;
}

template <typename T>
void rotate(const Rotary& r, const T* x, const T* cosine, const T* sine, const int64_t* ids, T* y) {
  const int64_t half = r.rotated / 2, step = r.interleaved ? 2 : 1, other = r.interleaved ? 1 : half;
  const int64_t rows = r.batch * r.positions;
#pragma omp parallel for num_threads(team_for(rows* r.heads* r.width, r.threads)) schedule(static)
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t cached = ids ? ids[row] : r.shared ? row % r.positions : row;
    const T *cosines = cosine + cached * half, *sines = sine + cached * half;
    for (int64_t head = 0; head < r.heads; ++head) {
      const int64_t at =
          row / r.positions * r.batch_stride + row % r.positions * r.position_stride + head * r.head_stride;
      const T* from = x + at;
      T* to = y + at;
      for (int64_t i = 0; i < half; ++i) {
        const auto a = load(from[i * step]), b = load(from[i * step + other]);
        const auto c = load(cosines[i]), s = load(sines[i]);
        to[i * step] = store<T>(c * a - s * b);
        to[i * step + other] = store<T>(s * a + c * b);
      }
      for (int64_t i = r.rotated; i < r.width; ++i) to[i] = from[i];
    }
  }
}

std::unique_ptr<Kernel> prepare_rotary_embedding(const PrepareContext& context) {
  const Rotary rotary = rotary_of(context);
  return dispatch(FloatTypes(), context.node, context.inputs[0].dtype, [&]<typename T>() {
    for (size_t i : {1, 2})
      if (context.inputs[i].dtype != dtype_of<T>()) fail_dtype(context.node, context.inputs[i].dtype);
    return make_kernel([rotary, by_id = context.has_input(3), label = context.node.label()](const KernelArgs& args) {
      const int64_t* ids = by_id ? args.in<int64_t>(3) : nullptr;
      if (ids)
        for (int64_t i = 0; i < rotary.batch * rotary.positions; ++i)
          if (ids[i] < 0 || ids[i] >= rotary.cache_rows)
            fail_running("kernel", "{}: position {} lies outside the caches' {} rows", label, ids[i],
                         rotary.cache_rows);
      rotate(rotary, args.in<T>(0), args.in<T>(1), args.in<T>(2), ids, args.out<T>());
    });
  });
}

}  // namespace

std::vector<KernelEntry> rotary_kernels() {
  return {{"RotaryEmbedding", "", prepare_rotary_embedding, {0}}};
}

}  // namespace tessera::kernels
