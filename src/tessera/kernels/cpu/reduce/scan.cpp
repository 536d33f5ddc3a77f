#include "tessera/kernels/cpu/reduce/reduce.h"

/// Operators that walk along one axis: the position of the extreme element, and running sums.
namespace tessera::kernels {
namespace {

/// Whether the element `x` replaces the earlier `best`. The first NaN beats all numbers.
template <bool greatest, typename C>
bool beats(C x, C best, bool last_of_equals) {
  if (best != best) return last_of_equals && x != x;
  if (x != x) return true;
  if (x == best) return last_of_equals;
  return greatest ? x > best : x < best;
}

template <bool greatest>
std::unique_ptr<Kernel> prepare_arg(const PrepareContext& context) {
  const int64_t axis = resolve_axis(context.node, context.node.get_int("axis", 0), context.inputs[0].rank());
  const AxisView view(context.inputs[0].dims, axis);
  if (view.extent == 0 && view.outer * view.inner > 0)
    fail("kernel", "{}: dimension {} is empty, so it has no extreme element", context.node.label(), axis);
  if (context.outputs[0].count() != view.outer * view.inner)
    fail("kernel", "{}: the declared result has {} elements, but there are {}", context.node.label(),
         context.outputs[0].count(), view.outer * view.inner);
  const bool last = context.node.get_int("select_last_index", 0) != 0;
  return dispatch(NumberTypes(), context.node, context.inputs[0].dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    return make_kernel([=, threads = context.threads](const KernelArgs& args) {
      const T* in = args.in<T>(0);
      int64_t* out = args.out<int64_t>();
      const int64_t inner = view.inner, extent = view.extent;
      for_ranges(inner == 0 ? 0 : view.outer, view.outer * extent * inner, threads, [&](int64_t begin, int64_t end) {
        for (int64_t o = begin; o < end; ++o) {
          const T* x = in + o * extent * inner;
          int64_t* best = out + o * inner;
          std::fill(best, best + inner, int64_t{0});
          for (int64_t at = 1; at < extent; ++at)
            for (int64_t i = 0; i < inner; ++i)
              if (beats<greatest>(load(x[at * inner + i]), load(x[best[i] * inner + i]), last)) best[i] = at;
        }
      });
    });
  });
}

/// Running sums or products along the axis, in float32 for 16-bit floats. Exclusive: without the element itself.
template <typename Of>
std::unique_ptr<Kernel> prepare_cumulative(const PrepareContext& context) {
  const std::vector<int64_t> axes = context.known_ints(1);
  if (axes.size() != 1) fail("kernel", "{}: needs one axis, not {}", context.node.label(), axes.size());
  const int64_t axis = resolve_axis(context.node, axes[0], context.inputs[0].rank());
  const AxisView view(context.inputs[0].dims, axis);
  const bool exclusive = context.node.get_int("exclusive", 0) != 0, reverse = context.node.get_int("reverse", 0) != 0;
  using Elements = decltype(FloatTypes() + Types<int32_t, int64_t, uint32_t, uint64_t>());
  return dispatch(Elements(), context.node, context.inputs[0].dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    return make_kernel([=, threads = context.threads](const KernelArgs& args) {
      using C = Compute<T>;
      constexpr int64_t width = 256;
      const T* in = args.in<T>(0);
      T* out = args.out<T>();
      const int64_t inner = view.inner, extent = view.extent, chunks = (inner + width - 1) / width;
      for_ranges(view.outer * chunks, view.outer * extent * inner, threads, [&](int64_t begin, int64_t end) {
        C totals[width];
        for (int64_t part = begin; part < end; ++part) {
          const int64_t column = part % chunks * width, n = std::min(width, inner - column);
          const int64_t start = part / chunks * extent * inner + column;
          std::fill(totals, totals + n, Of::template identity<C>());
          for (int64_t step = 0; step < extent; ++step) {
            const int64_t at = start + (reverse ? extent - 1 - step : step) * inner;
            for (int64_t i = 0; i < n; ++i) {
              const C before = totals[i];
              totals[i] = Of::combine(before, load(in[at + i]));
              out[at + i] = store<T>(exclusive ? before : totals[i]);
            }
          }
        }
      });
    });
  });
}

}  // namespace

std::vector<KernelEntry> scanning_kernels() {
  return {
      {"ArgMax", "", prepare_arg<true>, {}},
      {"ArgMin", "", prepare_arg<false>, {}},
      {"CumSum", "", prepare_cumulative<SumOf>, {0}},
      {"CumProd", "", prepare_cumulative<ProductOf>, {0}},
  };
}

}  // namespace tessera::kernels
