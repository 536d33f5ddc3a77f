#include "tessera/base/saturated.h"
#include "tessera/kernels/cpu/reduce/reduce.h"
#include "tessera/kernels/registry.h"

namespace tessera::kernels {

ReducePlan::ReducePlan(const Dims& dims, const std::vector<bool>& reduced) {
  struct Group {
    bool reduced;
    int64_t extent, stride;
  };
  std::vector<Group> groups;  // minor first
  int64_t stride = 1;
  for (size_t d = dims.size(); d-- > 0;) {
    if (!groups.empty() && groups.back().reduced == reduced[d])
      groups.back().extent *= dims[d];
    else
      groups.push_back({reduced[d], dims[d], stride});
    stride *= dims[d];
    (reduced[d] ? reduced_ : results_) *= dims[d];
  }
  if (groups.empty()) groups.push_back({false, 1, 1});
  row_ = groups.front().extent;
  reduces_rows_ = groups.front().reduced;
  for (size_t g = groups.size(); g-- > 1;) {
    (groups[g].reduced ? reduced_dims_ : kept_dims_).push_back(groups[g].extent);
    (groups[g].reduced ? reduced_strides_ : kept_strides_).push_back(groups[g].stride);
  }
}

namespace {

/// The reduced dimensions of the operand: `axes` (the second operand); all if it is absent or empty, or none if
/// noop_with_empty_axes is set.
std::vector<bool> reduced_dimensions(const PrepareContext& context) {
  const int64_t rank = context.inputs[0].rank();
  std::vector<int64_t> axes;
  if (context.has_input(1)) axes = context.known_ints(1);
  const bool none = axes.empty() && context.node.get_int("noop_with_empty_axes", 0) != 0;
  std::vector<bool> reduced(rank, axes.empty() && !none);
  for (int64_t axis : axes) reduced[resolve_axis(context.node, axis, rank)] = true;
  return reduced;
}

ReducePlan plan_for(const PrepareContext& context) {
  ReducePlan plan(context.inputs[0].dims, reduced_dimensions(context));
  if (plan.results() != context.outputs[0].count())
    fail("kernel", "{}: the declared result has {} elements, but the reduction leaves {}", context.node.label(),
         context.outputs[0].count(), plan.results());
  return plan;
}

/// The logarithm of a sum of integers need not be an integer; it is rounded to the nearest one, as in a Cast.
template <typename R, typename C>
R as_result(C value) {
  if constexpr (std::is_integral_v<R> && std::is_floating_point_v<C>)
    return saturated<R>(value);
  else
    return static_cast<R>(value);
}

/// Elements → total in C → Finish → result of type R. The plan's loops do not know Finish nor R.
template <typename Op, typename T, typename C, typename R, typename Finish>
std::unique_ptr<Kernel> reduce_kernel(const PrepareContext& context, Finish finish) {
  return make_kernel([plan = plan_for(context), finish, threads = context.threads](const KernelArgs& args) {
    R* out = args.out<R>();
    const int64_t reduced = plan.reduced();
    plan.template run<Op, C, T>(args.in<T>(0), nullptr, threads, [&](int64_t first, const C* totals, int64_t n) {
      for (int64_t i = 0; i < n; ++i) out[first + i] = as_result<R>(finish(totals[i], reduced));
    });
  });
}

struct AsIs {
  template <typename C>
  C operator()(C total, int64_t) const {
    return total;
  }
};
struct Divided {
  template <typename C>
  C operator()(C total, int64_t n) const {
    if constexpr (std::is_integral_v<C>)
      if (n == 0) return 0;
    return total / static_cast<C>(n);
  }
};
struct Rooted {
  template <typename C>
  C operator()(C total, int64_t) const {
    return std::sqrt(total);
  }
};
struct Logged {
  template <typename C>
  C operator()(C total, int64_t) const {
    return vector_math::log(total);
  }
};

template <typename Op, typename Finish = AsIs>
std::unique_ptr<Kernel> prepare_reduce(const PrepareContext& context) {
  using Elements = decltype(FloatTypes() + Types<int32_t, int64_t, uint32_t, uint64_t, int8_t, uint8_t>());
  return dispatch(Elements(), context.node, context.inputs[0].dtype,
                  [&]<typename T>() { return reduce_kernel<Op, T, Compute<T>, T>(context, Finish()); });
}

/// In our domain, accumulate = "float32" keeps the sums of 16-bit elements in float32.
template <typename Op, typename Finish = AsIs>
std::unique_ptr<Kernel> prepare_wide_reduce(const PrepareContext& context) {
  return dispatch(Types<BFloat16, Float16, float>(), context.node, context.inputs[0].dtype,
                  [&]<typename T>() { return reduce_kernel<Op, T, float, float>(context, Finish()); });
}

/// Roots and logarithms of integers' sums are taken in double.
template <typename Op, typename Finish>
std::unique_ptr<Kernel> prepare_real_reduce(const PrepareContext& context) {
  using Elements = decltype(FloatTypes() + Types<int32_t, int64_t>());
  return dispatch(Elements(), context.node, context.inputs[0].dtype, [&]<typename T>() {
    using C = std::conditional_t<std::is_integral_v<T>, double, Compute<T>>;
    return reduce_kernel<Op, T, C, T>(context, Finish());
  });
}

template <typename Op>
std::unique_ptr<Kernel> prepare_extreme(const PrepareContext& context) {
  const DType dtype = context.inputs[0].dtype;
  if (dtype != DType::boolean) return prepare_reduce<Op>(context);
  // 0 and 1 compare as bytes do; the identity of an empty reduction is false or true.
  return make_kernel([plan = plan_for(context), threads = context.threads](const KernelArgs& args) {
    uint8_t* out = args.out<uint8_t>();
    plan.template run<Op, uint8_t, uint8_t>(args.in<uint8_t>(0), nullptr, threads,
                                            [&](int64_t first, const uint8_t* totals, int64_t n) {
                                              for (int64_t i = 0; i < n; ++i) out[first + i] = totals[i] != 0;
                                            });
  });
}

/// log Σ exp(x) = m + log Σ exp(x - m), where m is the greatest x (0 if that is infinite).
std::unique_ptr<Kernel> prepare_log_sum_exp(const PrepareContext& context) {
  return dispatch(FloatTypes(), context.node, context.inputs[0].dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    using C = Compute<T>;
    const ReducePlan plan = plan_for(context);
    return make_kernel(
        [plan, threads = context.threads](const KernelArgs& args) {
          const T* in = args.in<T>(0);
          T* out = args.out<T>();
          C* shifts = static_cast<C*>(args.scratch);
          plan.template run<GreatestOf, C, T>(in, nullptr, threads, [&](int64_t first, const C* greatest, int64_t n) {
            for (int64_t i = 0; i < n; ++i)
              shifts[first + i] = std::fabs(greatest[i]) <= std::numeric_limits<C>::max() ? greatest[i] : C(0);
          });
          plan.template run<SumOfExponentials, C, T>(
              in, shifts, threads, [&](int64_t first, const C* totals, int64_t n) {
                for (int64_t i = 0; i < n; ++i)
                  out[first + i] = static_cast<T>(vector_math::log(totals[i]) + shifts[first + i]);
              });
        },
        static_cast<size_t>(plan.results()) * sizeof(C));
  });
}

}  // namespace

std::vector<KernelEntry> reduction_kernels() {
  std::vector<KernelEntry> entries = {
      {"ReduceSum", "", prepare_reduce<SumOf>, {}},
      {"ReduceMean", "", prepare_reduce<SumOf, Divided>, {}},
      {"ReduceSum", "tessera", prepare_wide_reduce<SumOf>, {}},
      {"ReduceMean", "tessera", prepare_wide_reduce<SumOf, Divided>, {}},
      {"ReduceSumSquare", "tessera", prepare_wide_reduce<SumOfSquares>, {}},
      {"ReduceL1", "tessera", prepare_wide_reduce<SumOfMagnitudes>, {}},
      {"ReduceProd", "", prepare_reduce<ProductOf>, {}},
      {"ReduceMax", "", prepare_extreme<GreatestOf>, {}},
      {"ReduceMin", "", prepare_extreme<LeastOf>, {}},
      {"ReduceSumSquare", "", prepare_reduce<SumOfSquares>, {}},
      {"ReduceL1", "", prepare_reduce<SumOfMagnitudes>, {}},
      {"ReduceL2", "", prepare_real_reduce<SumOfSquares, Rooted>, {}},
      {"ReduceLogSum", "", prepare_real_reduce<SumOf, Logged>, {}},
      {"ReduceLogSumExp", "", prepare_log_sum_exp, {}},
  };
  std::vector<KernelEntry> scans = scanning_kernels();
  entries.insert(entries.end(), scans.begin(), scans.end());
  return entries;
}

}  // namespace tessera::kernels
