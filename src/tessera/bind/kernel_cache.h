#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "tessera/kernels/kernel.h"

namespace tessera::bind {

/// The kernels of a rank's machine programs, by the context that they were prepared from. Programs for other sizes
/// reuse kernels whose extents are the same, since preparing a kernel can take as long as running it. A rank's plans
/// can share kernels because they run one after the other. The cache itself keeps no kernel alive.
class KernelCache {
 public:
  using Prepare = std::function<std::unique_ptr<kernels::Kernel>()>;

  /// The kernel of the node or group that makes `result`; `prepare` makes it unless one for the same `context` exists.
  /// The context's known elements must live as long as the rank.
  std::shared_ptr<kernels::Kernel> kernel(const Value* result, const kernels::PrepareContext& context,
                                          const Prepare& prepare);

  /// Call this before values of a program are destroyed.
  void drop_unused();

 private:
  struct Entry {
    uint64_t hash = 0;  ///< of all that follows, except the kernel
    std::string op_type;
    std::vector<const Node*> followers;
    std::vector<kernels::TensorDesc> inputs, outputs;
    std::vector<const void*> known;
    std::weak_ptr<kernels::Kernel> kernel;
  };
  std::map<const Value*, std::vector<Entry>> entries_;
};

}  // namespace tessera::bind
