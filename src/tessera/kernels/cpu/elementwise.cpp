#include "tessera/kernels/cpu/elementwise.h"

#include "tessera/kernels/registry.h"

namespace tessera::kernels {

std::vector<KernelEntry> elementwise_kernels() {
  std::vector<KernelEntry> all;
  for (auto group : {unary_kernels, activation_kernels, arithmetic_kernels, power_kernels, comparison_kernels,
                     bitwise_kernels, selection_kernels, cast_kernels, dropout_kernels}) {
    std::vector<KernelEntry> entries = group();
    all.insert(all.end(), std::make_move_iterator(entries.begin()), std::make_move_iterator(entries.end()));
  }
  return all;
}

}  // namespace tessera::kernels
