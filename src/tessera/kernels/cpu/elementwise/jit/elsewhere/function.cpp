#include "tessera/kernels/cpu/elementwise/jit/function.h"

/// Processors for which the compiler writes no code.
namespace tessera::kernels::jit {

Target best_target() {
  return Target::none;
}

bool fits(const Chain&, Target) {
  return false;
}

std::shared_ptr<const Function> compile(const Chain&, Target) {
  return nullptr;
}

}  // namespace tessera::kernels::jit
