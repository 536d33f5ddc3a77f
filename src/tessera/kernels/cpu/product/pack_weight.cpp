#include <array>

#include "tessera/kernels/cpu/elementwise/via_float32.h"
#include "tessera/kernels/cpu/library/dispatch.h"
#include "tessera/kernels/cpu/library/scratch.h"
#include "tessera/kernels/cpu/product/weight_layout.h"

namespace tessera::kernels {
namespace {

std::unique_ptr<Kernel> prepare_pack(const WeightLayout& layout, const TensorDesc& weight, int threads) {
  ScratchPlan plan;
  const bool widened = layout.stored != weight.dtype;
  const size_t wide_at = plan.add(widened ? layout.plain.get_size() : 0);
  // A weight that is only widened keeps its layout; then the reorder is a copy.
  std::shared_ptr<onednn::Primitive> reorder = onednn::reorder(layout.plain, layout.packed, threads);
  const size_t inner_at = plan.add(reorder ? reorder->scratch_bytes() : 0);
  return make_kernel(
      [=, count = weight.count(), dtype = weight.dtype](const KernelArgs& args) {
        const void* plain = args.inputs[0];
        if (widened) {
          float* wide = reorder ? scratch_at<float>(args.scratch, wide_at) : args.out<float>();
          widen(dtype, plain, wide, count, threads);
          plain = wide;
        }
        if (reorder)
          reorder->run(std::array<const void*, 2>{plain, args.outputs[0]}, scratch_at(args.scratch, inner_at));
      },
      plan.bytes());
}

}  // namespace

std::optional<PackedLayout> packed_as(const std::optional<WeightLayout>& layout, const Node& node,
                                      const TensorDesc& weight, std::initializer_list<std::string_view> attributes) {
  if (!layout || layout->bytes() == 0) return std::nullopt;
  PackedLayout packed = new_packed_layout(node, weight, layout->bytes(), attributes);
  packed.prepare = [layout = *layout](const std::vector<TensorDesc>& operands, int threads) {
    return prepare_pack(layout, operands.at(0), threads);
  };
  return packed;
}

std::optional<PackedLayout> pack_product(const Node& node, const TensorDesc& weight) {
  return packed_as(product_weight_layout(node, weight), node, weight, {"transB"});
}

}  // namespace tessera::kernels
