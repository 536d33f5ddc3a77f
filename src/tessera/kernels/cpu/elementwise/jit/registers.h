#pragma once

#include "tessera/kernels/cpu/elementwise/jit/chain.h"

namespace tessera::kernels::jit {

/// Which register holds each value of a chain, by a scan in the steps' order: an operand from the first step that reads
/// it, a result from the step that makes it, both to the last step that reads them. A step's result is in no register
/// of its operands. Fixed operands are in none.
///
/// Example: x · x + y: x is in 0, the product in 1; then x's register is free, y is in 0, and the sum in 2.
struct Registers {
  std::vector<int> of_operand, of_step;
  int count = 0;

  explicit Registers(const Chain& chain);
};

}  // namespace tessera::kernels::jit
