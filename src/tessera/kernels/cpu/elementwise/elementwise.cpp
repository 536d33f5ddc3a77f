#include "tessera/kernels/cpu/elementwise/elementwise.h"

#include "tessera/kernels/registry.h"

namespace tessera::kernels {

std::vector<KernelEntry> elementwise_kernels() {
  std::vector<KernelEntry> all;
  for (auto group : {unary_kernels, activation_kernels, arithmetic_kernels, power_kernels, comparison_kernels,
                     bitwise_kernels, selection_kernels, cast_kernels}) {
    std::vector<KernelEntry> entries = group();
    for (KernelEntry& entry : entries)
      entry.elementwise = entry.op_type != "CastLike";  // its operand 1 only gives a type
    all.insert(all.end(), std::make_move_iterator(entries.begin()), std::make_move_iterator(entries.end()));
  }
  for (KernelEntry& entry : dropout_kernels()) all.push_back(std::move(entry));  // has two results, or random ones
  return all;
}

}  // namespace tessera::kernels
