#pragma once

#include "tessera/kernels/cpu/elementwise/broadcast.h"
#include "tessera/kernels/cpu/elementwise/loops.h"
#include "tessera/kernels/kernel.h"

/// The groups that make up the element-wise family, one file each.
namespace tessera::kernels {

std::vector<KernelEntry> unary_kernels();       // Abs, Exp, Sqrt, Round, Not, IsNaN, …
std::vector<KernelEntry> activation_kernels();  // Relu, Gelu, Sigmoid, HardSwish, …
std::vector<KernelEntry> arithmetic_kernels();  // Add, Mul, Mod, PRelu; Max, Sum, Mean, … of any number of operands
std::vector<KernelEntry> power_kernels();       // Pow
std::vector<KernelEntry> comparison_kernels();  // Equal, Less, …
std::vector<KernelEntry> bitwise_kernels();     // And, BitwiseXor, BitShift, …
std::vector<KernelEntry> selection_kernels();   // Where, Clip
std::vector<KernelEntry> cast_kernels();        // Cast, CastLike
std::vector<KernelEntry> dropout_kernels();     // Dropout

/// The kernel of `out[i] = op(in[i])` for elements of T and results of R.
template <typename T, typename R, typename Op>
std::unique_ptr<Kernel> unary_kernel(const PrepareContext& context, Op op) {
  const int64_t count = context.outputs[0].count();
  return make_kernel([op, count, threads = context.threads](const KernelArgs& args) {
    const T* in = args.in<T>(0);
    R* out = args.out<R>();
    for_ranges(count, count, threads,
               [&](int64_t begin, int64_t end) { map_unary(in + begin, out + begin, end - begin, op); });
  });
}

/// The factory of an operator on floats whose function object Op is made from nothing or from the node's attributes.
template <typename Op>
std::unique_ptr<Kernel> prepare_float_unary(const PrepareContext& context) {
  return dispatch(FloatTypes(), context.node, context.inputs[0].dtype, [&]<typename T>() -> std::unique_ptr<Kernel> {
    if constexpr (std::is_constructible_v<Op, const Node&>)
      return unary_kernel<T, T>(context, Op(context.node));
    else
      return unary_kernel<T, T>(context, Op());
  });
}

/// The same for operators that integers have too.
template <typename Op>
std::unique_ptr<Kernel> prepare_number_unary(const PrepareContext& context) {
  return dispatch(NumberTypes(), context.node, context.inputs[0].dtype,
                  [&]<typename T>() { return unary_kernel<T, T>(context, Op()); });
}

/// The kernel of `out[i] = op(a[i], b[i])` under broadcasting, for operands of T and results of R.
template <typename T, typename R, typename Op>
std::unique_ptr<Kernel> binary_kernel(const PrepareContext& context, Op op) {
  Broadcast plan(context.node, context.outputs[0].dims, {context.inputs[0].dims, context.inputs[1].dims});
  return make_kernel([op, plan = std::move(plan), threads = context.threads](const KernelArgs& args) {
    const T* a = args.in<T>(0);
    const T* b = args.in<T>(1);
    R* out = args.out<R>();
    plan.for_each_row(threads, [&](const int64_t* offsets, int64_t begin, int64_t n) {
      map_binary(a + offsets[0], plan.fixed(0), b + offsets[1], plan.fixed(1), out + begin, n, op);
    });
  });
}

}  // namespace tessera::kernels
