#include <omp.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tessera/base/checked.h"
#include "tessera/kernels/axes.h"
#include "tessera/kernels/cpu/library/parallel.h"
#include "tessera/kernels/cpu/move/indexing.h"

namespace tessera::kernels {
namespace {

/// A new dimension of extent `depth` at the axis: the second of `values` where the index points, the first elsewhere.
/// An index outside [-depth, depth) points nowhere.
std::unique_ptr<Kernel> prepare_one_hot(const PrepareContext& context) {
  const Dims& dims = context.outputs[0].dims;
  const int64_t axis = resolve_axis(context.node, context.node.get_int("axis", -1), context.outputs[0].rank());
  const AxisView view(dims, axis);
  const int64_t depth = view.extent, inner = view.inner;
  if (context.inputs[0].count() != view.outer * inner || context.inputs[2].count() != 2)
    fail("kernel", "{}: the indices do not fit the result, or there are not two values", context.node.label());
  return dispatch(NumberTypes(), context.node, context.inputs[0].dtype, [&]<typename I>() {
    return dispatch_size(context.node, context.outputs[0].dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
      return make_kernel([=, outer = view.outer, threads = context.threads](const KernelArgs& args) {
        const I* indices = args.in<I>(0);
        const T off = args.in<T>(2)[0], on = args.in<T>(2)[1];
        T* out = args.out<T>();
        for_ranges(outer, outer * depth * inner, threads, [&](int64_t begin, int64_t end) {
          for (int64_t o = begin; o < end; ++o) {
            T* block = out + o * depth * inner;
            std::fill(block, block + depth * inner, off);
            for (int64_t i = 0; i < inner; ++i) {
              const auto given = load(indices[o * inner + i]);
              if (static_cast<double>(given) < -static_cast<double>(depth) ||
                  static_cast<double>(given) >= static_cast<double>(depth) || given != given)
                continue;
              const int64_t index = static_cast<int64_t>(given);
              block[(index < 0 ? index + depth : index) * inner + i] = on;
            }
          }
        });
      });
    });
  });
}

/// The order of TopK: greater first (or smaller), NaN greatest of all, the lower position first among equals.
template <typename C>
bool precedes(C a, int64_t a_at, C b, int64_t b_at, bool largest) {
  const bool a_nan = a != a, b_nan = b != b;
  const bool greater = a_nan ? !b_nan : !b_nan && a > b;
  const bool less = b_nan ? !a_nan : !a_nan && a < b;
  if (greater || less) return largest ? greater : less;
  return a_at < b_at;
}

std::unique_ptr<Kernel> prepare_top_k(const PrepareContext& context) {
  const int64_t axis = resolve_axis(context.node, context.node.get_int("axis", -1), context.inputs[0].rank());
  const AxisView view(context.inputs[0].dims, axis);
  const TensorDesc& result = context.has_output(0) ? context.outputs[0] : context.outputs.at(1);
  const int64_t k = result.dims.at(axis);
  if (k > view.extent) fail("kernel", "{}: k is {}, but there are {} elements", context.node.label(), k, view.extent);
  const bool largest = context.node.get_int("largest", 1) != 0;
  const bool values_wanted = context.has_output(0), indices_wanted = context.has_output(1);
  const size_t scratch = checked_bytes({context.threads, view.extent, sizeof(int64_t)}, "the order of a TopK");
  return dispatch(NumberTypes(), context.node, context.inputs[0].dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    return make_kernel(
        [=, threads = context.threads](const KernelArgs& args) {
          const T* in = args.in<T>(0);
          for_ranges(view.outer * view.inner, view.outer * view.extent * view.inner, threads,
                     [&](int64_t begin, int64_t end) {
                       int64_t* order = static_cast<int64_t*>(args.scratch) + omp_get_thread_num() * view.extent;
                       for (int64_t line = begin; line < end; ++line) {
                         const int64_t o = line / view.inner, i = line % view.inner;
                         const T* x = in + o * view.extent * view.inner + i;
                         auto at = [&](int64_t position) { return load(x[position * view.inner]); };
                         std::iota(order, order + view.extent, int64_t{0});
                         std::partial_sort(order, order + k, order + view.extent,
                                           [&](int64_t a, int64_t b) { return precedes(at(a), a, at(b), b, largest); });
                         for (int64_t rank = 0; rank < k; ++rank) {
                           const int64_t to = (o * k + rank) * view.inner + i;
                           if (values_wanted) args.out<T>(0)[to] = x[order[rank] * view.inner];
                           if (indices_wanted) args.out<int64_t>(1)[to] = order[rank];
                         }
                       }
                     });
        },
        scratch);
  });
}

}  // namespace

std::vector<KernelEntry> choosing_kernels() {
  return {
      {"OneHot", "", prepare_one_hot, {}},
      {"TopK", "", prepare_top_k, {}},
  };
}

}  // namespace tessera::kernels
