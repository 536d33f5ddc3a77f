#include <cstring>

#include "tessera/kernels/cpu/elementwise/elementwise.h"
#include "tessera/kernels/cpu/library/require.h"

namespace tessera::kernels {
namespace {

/// Inference: gives the operand itself, and a mask of kept elements, which is all true. The flag training_mode may come
/// from data, so it is read in the run.
std::unique_ptr<Kernel> prepare_dropout(const PrepareContext& context) {
  require_scalar(context, 2, "training_mode", DType::boolean);
  const bool has_flag = context.has_input(2), wants_result = context.has_output(0), wants_mask = context.has_output(1);
  return make_kernel([=, bytes = context.inputs[0].bytes(), count = context.inputs[0].count(),
                      label = context.node.label()](const KernelArgs& args) {
    if (has_flag && *args.in<bool>(2))
      fail("kernel", "{}: training_mode is true; dropping elements is not supported, only inference is", label);
    if (wants_result && bytes > 0 && args.outputs[0] != args.inputs[0])
      std::memcpy(args.outputs[0], args.inputs[0], bytes);
    if (wants_mask) std::fill_n(args.out<bool>(1), count, true);
  });
}

}  // namespace

std::vector<KernelEntry> dropout_kernels() {
  return {{"Dropout", "", prepare_dropout, {0}}};
}

}  // namespace tessera::kernels
