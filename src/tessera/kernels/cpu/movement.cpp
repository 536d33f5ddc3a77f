#include "tessera/kernels/cpu/movement.h"

#include "tessera/kernels/registry.h"

namespace tessera::kernels {

std::vector<KernelEntry> movement_kernels() {
  std::vector<KernelEntry> all;
  for (auto group : {rearranging_kernels, joining_kernels, padding_kernels, resizing_kernels, making_kernels}) {
    std::vector<KernelEntry> entries = group();
    all.insert(all.end(), std::make_move_iterator(entries.begin()), std::make_move_iterator(entries.end()));
  }
  return all;
}

}  // namespace tessera::kernels
