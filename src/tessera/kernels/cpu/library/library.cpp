#include "tessera/kernels/library.h"

#include "tessera/kernels/cpu/elementwise/followers.h"
#include "tessera/kernels/cpu/elementwise/group.h"
#include "tessera/kernels/cpu/image/channel_blocks.h"
#include "tessera/kernels/cpu/image/pooling.h"
#include "tessera/kernels/cpu/quantized/sums_epilogue.h"

namespace tessera::kernels {
namespace {

class CpuLibrary : public Library {
 public:
  const KernelEntry* find(std::string_view op_type, std::string_view domain) const override {
    return find_kernel(op_type, domain);
  }
  std::unique_ptr<Kernel> prepare(const KernelEntry& entry, const PrepareContext& context) const override {
    return prepare_kernel(entry, context);
  }
  std::optional<PackedLayout> packed_layout(const Node& node, const TensorDesc& weight) const override {
    return kernels::packed_layout(node, weight);
  }
  bool has_epilogues(DType dtype) const override {
    return (dtype == DType::float32 || dtype == DType::bfloat16) && onednn::is_native(dtype);
  }
  bool can_follow(const Node& node) const override { return kernels::can_follow(node); }
  bool takes_operand(const Node& follower) const override { return kernels::takes_operand(follower); }
  bool keeps_zero(const Node& follower) const override { return kernels::keeps_zero(follower); }
  bool can_follow_sums(const Node& node, size_t index) const override { return kernels::can_follow_sums(node, index); }
  std::vector<const Node*> sum_after_codes(const Value& codes) const override { return nodes_of_sum_of_codes(codes); }
  bool can_group(const Node& node) const override { return kernels::can_group(node); }
  bool has_long_rows(const Node& root, const Dims& result, const std::vector<TensorDesc>& operands) const override {
    return kernels::has_long_rows(root, result, operands);
  }
  int64_t channel_block(DType dtype) const override { return kernels::channel_block(dtype); }
  bool pools_in_blocks(const Node& node, const TensorDesc& operand, const TensorDesc& result) const override {
    if (kernels::channel_block(operand.dtype) == all_channels) return node.is("MaxPool");
    return library_pools(node, operand, result);
  }
};

}  // namespace

const Library& cpu_library() {
  static const CpuLibrary library;
  return library;
}

}  // namespace tessera::kernels
