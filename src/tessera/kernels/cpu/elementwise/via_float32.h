#pragma once

#include "tessera/base/float16.h"
#include "tessera/kernels/kernel.h"

namespace tessera::kernels {

/// Makes a kernel on 16-bit floats from the float32 kernel: it widens operands into scratch memory and rounds results
/// from it. For operators whose library kernels do not take the type on this machine. `prepare` gets a context in which
/// every 16-bit float operand and result is float32.
std::unique_ptr<Kernel> via_float32(const PrepareContext& context, KernelFactory prepare);

/// Widens `count` 16-bit floats of type `from`; copies float32.
void widen(DType from, const void* source, float* target, int64_t count, int threads);
/// Rounds `count` elements to the 16-bit float `to`; copies float32.
void narrow(const float* source, DType to, void* target, int64_t count, int threads);

/// The same on one thread.
void widen_row(const BFloat16* source, float* target, int64_t count);
void widen_row(const Float16* source, float* target, int64_t count);
void narrow_row(const float* source, BFloat16* target, int64_t count);
void narrow_row(const float* source, Float16* target, int64_t count);

}  // namespace tessera::kernels
