#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "tessera/kernels/kernel.h"

namespace tessera::runtime {

/// The kernels of a rank's plans, by what they were prepared from: a plan for other sizes takes over those whose
/// extents are the same, since to prepare a kernel can take as long as to run it. Plans of a rank run one after the
/// other, so they can share. Holds no kernel itself.
class KernelCache {
 public:
  using Prepare = std::function<std::unique_ptr<kernels::Kernel>()>;

  /// The kernel of the node or group that makes `result`, prepared from `context`, now or before. What the context
  /// calls known must live as long as the rank.
  std::shared_ptr<kernels::Kernel> kernel(const Value* result, const kernels::PrepareContext& context,
                                          const Prepare& prepare);

  /// To be called before values of a program go away.
  void drop_unused();

 private:
  struct Entry {
    uint64_t hash = 0;  ///< of the rest but the kernel
    std::string op_type;
    std::vector<const Node*> followers;
    std::vector<kernels::TensorDesc> inputs, outputs;
    std::vector<const void*> known;
    std::weak_ptr<kernels::Kernel> kernel;
  };
  std::map<const Value*, std::vector<Entry>> entries_;
};

}  // namespace tessera::runtime
