#pragma once

#include "tessera/kernels/cpu/library/onednn.h"
#include "tessera/kernels/cpu/library/scratch.h"

namespace tessera::kernels::onednn {

/// A primitive that needs some arguments in other layouts than theirs. It reorders operands before, and the result
/// after, in scratch memory.
class AdaptedPrimitive {
 public:
  struct Argument {
    int id;     ///< DNNL_ARG_…
    Md given;   ///< the layout in memory
    Md wanted;  ///< the layout that the primitive takes
  };

  /// The last argument is the result.
  AdaptedPrimitive(const dnnl::primitive& primitive, const Md& scratchpad, const std::vector<Argument>& arguments,
                   int threads);

  size_t scratch_bytes() const { return plan_.bytes(); }
  /// `addresses` in the order of the arguments, all of oneDNN's types.
  void run(std::span<const void* const> addresses, void* scratch);

 private:
  struct Adaption {
    std::unique_ptr<Primitive> reorder;  // null: the argument is taken as it is
    size_t at = 0, scratch_at = 0;
  };

  Primitive primitive_;
  std::vector<Adaption> adaptions_;
  std::vector<const void*> addresses_;
  ScratchPlan plan_;
  size_t scratch_at_ = 0;
};

}  // namespace tessera::kernels::onednn
