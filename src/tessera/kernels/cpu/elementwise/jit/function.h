#pragma once

#include <memory>

#include "tessera/kernels/cpu/elementwise/jit/chain.h"

namespace tessera::kernels::jit {

/// The instruction sets that the compiler writes for.
enum class Target { none, avx2, avx512 };

/// The best one of this machine.
Target best_target();

/// Whether the chain's values fit the target's registers.
bool fits(const Chain& chain, Target target);

/// A chain as machine code.
class Function {
 public:
  virtual ~Function() = default;

  /// Computes `count` elements: operands in the chain's order, then the results that are stored, in the steps' order.
  /// No alignment is needed. A result may lie where an operand of the same element size lies that no later step reads.
  void run(const void* const* operands, void* const* results, int64_t count) const { code_(operands, results, count); }

 protected:
  using Code = void (*)(const void* const* operands, void* const* results, int64_t count);
  Code code_ = nullptr;
};

/// The function of a chain that fits, made at the first call for an equal chain and kept while somebody holds it; from
/// any thread. Its bits are those of the nodes' own kernels, except that a NaN which comes of two NaNs may be either.
/// Null if the system refuses executable memory.
std::shared_ptr<const Function> compile(const Chain& chain, Target target);

}  // namespace tessera::kernels::jit
