#include "tessera/base/error.h"
#include "tessera/kernels/cpu/attention/shape.h"
#include "tessera/kernels/cpu/library/dispatch.h"
#include "tessera/kernels/cpu/library/extents.h"
#include "tessera/kernels/registry.h"

namespace tessera::kernels {
namespace {

/// X and Y as [batch, heads, positions, width]; the last `width - rotated` elements pass.
struct Rotary {
  int64_t batch, heads, positions, width, rotated;
  HeadsLayout x, y;
  bool interleaved;
  bool shared;         ///< one cache serves every batch
  int64_t cache_rows;  ///< rows of the caches that position_ids choose from; 0: the caches are per batch and position
  int threads;
};

Rotary rotary_of(const PrepareContext& context) {
  const Node& node = context.node;
  const Heads x = heads_of(node, context.inputs.at(0), "num_heads");
  Rotary r{x.batch, x.heads, x.positions, x.width, 0, x.layout, {}, false, false, 0, context.threads};
  r.y = heads_of(node, context.outputs.at(0), "num_heads").layout;
  r.rotated = node.get_int("rotary_embedding_dim", 0);
  if (r.rotated == 0) r.rotated = r.width;
  r.interleaved = node.get_int("interleaved", 0) != 0;
  const Dims &cosine = context.inputs.at(1).dims, &sine = context.inputs.at(2).dims;
  const bool by_id = context.has_input(3);
  // A cache for all batches may have a batch extent of 1.
  r.shared = !by_id && cosine.size() == 3 && cosine[0] == 1;
  const Dims wanted = by_id ? Dims{cosine.empty() ? 0 : cosine[0], r.rotated / 2}
                            : Dims{r.shared ? 1 : r.batch, r.positions, r.rotated / 2};
  if (context.inputs[0].count() > 0 &&
      (r.rotated % 2 != 0 || r.rotated > r.width || cosine != wanted || sine != wanted))
    fail("kernel", "{}: caches of extents {} and {} do not fit {} rotated elements of X {}", node.label(),
         text_of(cosine), text_of(sine), r.rotated, text_of(context.inputs[0].dims));
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
      const T* from = x + r.x.at(row / r.positions, head, row % r.positions);
      T* to = y + r.y.at(row / r.positions, head, row % r.positions);
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
            fail("kernel", "{}: position {} lies outside the caches' {} rows", label, ids[i], rotary.cache_rows);
      rotate(rotary, args.in<T>(0), args.in<T>(1), args.in<T>(2), ids, args.out<T>());
    });
  });
}

}  // namespace

std::vector<KernelEntry> rotary_kernels() {
  return {{.op_type = "RotaryEmbedding",
           .domain = "",
           .prepare = prepare_rotary_embedding,
           .in_place = {0},
           .strided = {0},
           .strides_result = true}};
}

}  // namespace tessera::kernels
