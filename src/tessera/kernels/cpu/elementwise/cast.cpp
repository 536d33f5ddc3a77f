#include "tessera/base/saturated.h"
#include "tessera/kernels/cpu/elementwise/elementwise.h"
#include "tessera/kernels/cpu/elementwise/narrow.h"

namespace tessera::kernels {
namespace {

template <typename To, typename From>
To converted(From stored) {
  const Compute<From> value = load(stored);
  if constexpr (std::is_same_v<To, bool>)
    return value != Compute<From>(0);
  else if constexpr (std::is_floating_point_v<Compute<From>> && std::is_integral_v<To>)
    return saturated<To>(value);
  else
    return static_cast<To>(static_cast<Compute<To>>(value));
}

/// Converts elements [begin, end).
using Convert = void (*)(const void* in, void* out, int64_t begin, int64_t end);

template <typename From, typename To>
void convert(const void* from, void* to, int64_t begin, int64_t end) {
  const From* in = static_cast<const From*>(from) + begin;
  To* out = static_cast<To*>(to) + begin;
  const int64_t n = end - begin;
  if constexpr (is_narrow_float<From> && std::is_same_v<To, float>)
    widen_row(in, out, n);
  else if constexpr (std::is_same_v<From, float> && is_narrow_float<To>)
    narrow_row(in, out, n);
  else
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = converted<To>(in[i]);
}

std::unique_ptr<Kernel> prepare_cast(const PrepareContext& context) {
  const DType from = context.inputs[0].dtype, to = context.outputs[0].dtype;
  if (is_narrow_storage(from) || is_narrow_storage(to)) return prepare_narrow_cast(context);
  const int64_t count = context.outputs[0].count();
  const int threads = context.threads;
  const Convert convert_range = dispatch(AllTypes(), context.node, from, [&]<typename From>() {
    return dispatch(AllTypes(), context.node, to, [&]<typename To>() -> Convert { return convert<From, To>; });
  });
  return make_kernel([count, threads, convert_range](const KernelArgs& args) {
    for_ranges(count, count, threads,
               [&](int64_t begin, int64_t end) { convert_range(args.inputs[0], args.outputs[0], begin, end); });
  });
}

/// The same bits under another type.
std::unique_ptr<Kernel> prepare_bit_cast(const PrepareContext& context) {
  return make_kernel([bytes = context.inputs[0].bytes()](const KernelArgs& args) {
    if (args.inputs[0] != args.outputs[0]) std::copy_n(args.in<std::byte>(0), bytes, args.out<std::byte>());
  });
}

}  // namespace

std::vector<KernelEntry> cast_kernels() {
  return {
      {"Cast", "", prepare_cast, {0}},
      {"CastLike", "", prepare_cast, {0}},
      {"BitCast", "", prepare_bit_cast, {0}},
  };
}

}  // namespace tessera::kernels
