#include "tessera/kernels/cpu/elementwise/elementwise.h"
#include "tessera/kernels/cpu/library/require.h"

namespace tessera::kernels {
namespace {

template <typename T>
TESSERA_MULTIVERSION static void select_loop(const uint8_t* condition, const T* a, int64_t a_step, const T* b,
                                             int64_t b_step, T* out, int64_t n) {
  if (a_step == 1 && b_step == 1) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = condition[i] != 0 ? a[i] : b[i];
  } else if (a_step == 1) {
    const T otherwise = b[0];
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = condition[i] != 0 ? a[i] : otherwise;
  } else if (b_step == 1) {
    const T chosen = a[0];
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = condition[i] != 0 ? chosen : b[i];
  } else {
    const T chosen = a[0], otherwise = b[0];
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = condition[i] != 0 ? chosen : otherwise;
  }
}

std::unique_ptr<Kernel> prepare_where(const PrepareContext& context) {
  Broadcast plan(context.node, context.outputs[0].dims,
                 {context.inputs[0].dims, context.inputs[1].dims, context.inputs[2].dims});
  return dispatch_size(context.node, context.outputs[0].dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    return make_kernel([plan, threads = context.threads](const KernelArgs& args) {
      const uint8_t* condition = args.in<uint8_t>(0);
      const T* a = args.in<T>(1);
      const T* b = args.in<T>(2);
      T* out = args.out<T>();
      plan.for_each_row(threads, [&](const int64_t* offsets, int64_t begin, int64_t n) {
        const int64_t a_step = plan.fixed(1) ? 0 : 1, b_step = plan.fixed(2) ? 0 : 1;
        const uint8_t* c = condition + offsets[0];
        if (!plan.fixed(0)) {
          select_loop(c, a + offsets[1], a_step, b + offsets[2], b_step, out + begin, n);
          return;
        }
        const T* chosen = *c != 0 ? a + offsets[1] : b + offsets[2];
        if ((*c != 0 ? a_step : b_step) == 0)
          std::fill(out + begin, out + begin + n, *chosen);
        else
          std::copy(chosen, chosen + n, out + begin);
      });
    });
  });
}

/// The bounds are scalars that may come from data; an absent one does not bind. NaN passes; if the bounds cross, the
/// upper one wins.
std::unique_ptr<Kernel> prepare_clip(const PrepareContext& context) {
  require_scalar(context, 1, "the lower bound", context.inputs[0].dtype);
  require_scalar(context, 2, "the upper bound", context.inputs[0].dtype);
  const bool has_low = context.has_input(1), has_high = context.has_input(2);
  const int64_t count = context.outputs[0].count();
  return dispatch(NumberTypes(), context.node, context.inputs[0].dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    return make_kernel([=, threads = context.threads](const KernelArgs& args) {
      using C = Compute<T>;
      using Limits = std::numeric_limits<C>;
      const C least = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
      const C greatest = Limits::has_infinity ? Limits::infinity() : Limits::max();
      const C low = has_low ? load(*args.in<T>(1)) : least;
      const C high = has_high ? load(*args.in<T>(2)) : greatest;
      const T* in = args.in<T>(0);
      T* out = args.out<T>();
      for_ranges(count, count, threads, [&](int64_t begin, int64_t end) {
        map_unary(in + begin, out + begin, end - begin, [low, high](C x) {
          const C raised = x < low ? low : x;
          return raised > high ? high : raised;
        });
      });
    });
  });
}

}  // namespace

std::vector<KernelEntry> selection_kernels() {
  return {
      {"Where", "", prepare_where, {1, 2}},
      {"Clip", "", prepare_clip, {0}},
  };
}

}  // namespace tessera::kernels
