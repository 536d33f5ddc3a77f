#pragma once

#include <functional>

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

/// Computes elements [begin, end).
using UnaryRange = std::function<void(const void* in, void* out, int64_t begin, int64_t end)>;
std::unique_ptr<Kernel> unary_kernel(const PrepareContext& context, UnaryRange compute);

/// The kernel of `out[i] = op(in[i])` for elements of T and results of R.
template <typename T, typename R, typename Op>
std::unique_ptr<Kernel> unary_kernel(const PrepareContext& context, Op op) {
  return unary_kernel(context, [op](const void* in, void* out, int64_t begin, int64_t end) {
    map_unary(static_cast<const T*>(in) + begin, static_cast<R*>(out) + begin, end - begin, op);
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

/// Computes all elements of a result from its operands under a plan.
using BinaryRun = void (*)(const Broadcast& plan, const KernelArgs& args, int threads);
std::unique_ptr<Kernel> binary_kernel(const PrepareContext& context, BinaryRun run);

/// The kernel of `out[i] = op(a[i], b[i])` under broadcasting, for operands of T and results of R.
template <typename T, typename R, typename Op>
std::unique_ptr<Kernel> binary_kernel(const PrepareContext& context) {
  return binary_kernel(context, [](const Broadcast& plan, const KernelArgs& args, int threads) {
    const T* a = args.in<T>(0);
    const T* b = args.in<T>(1);
    R* out = args.out<R>();
    plan.for_each_row(threads, [&](const int64_t* offsets, int64_t begin, int64_t n) {
      map_binary(a + offsets[0], plan.fixed(0), b + offsets[1], plan.fixed(1), out + begin, n, Op());
    });
  });
}

}  // namespace tessera::kernels
