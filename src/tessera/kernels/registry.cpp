#include "tessera/kernels/registry.h"

#include <algorithm>
#include <map>

#include "tessera/base/error.h"
#include "tessera/kernels/cpu/elementwise/group.h"

namespace tessera::kernels {
namespace {

using Key = std::pair<std::string_view, std::string_view>;

std::map<Key, KernelEntry> build() {
  std::map<Key, KernelEntry> entries;
  for (auto family : {elementwise_kernels,
                      shape_kernels,
                      movement_kernels,
                      extent_kernels,
                      resize_kernels,
                      generator_kernels,
                      indexing_kernels,
                      reduction_kernels,
                      normalization_kernels,
                      softmax_kernels,
                      batch_normalization_kernels,
                      channel_normalization_kernels,
                      matmul_kernels,
                      einsum_kernels,
                      square_matrix_kernels,
                      convolution_kernels,
                      pooling_kernels,
                      grid_sample_kernels,
                      roi_align_kernels,
                      deform_conv_kernels,
                      recurrent_kernels,
                      attention_kernels,
                      attention_gradient_kernels,
                      rotary_kernels,
                      cache_kernels,
                      experts_kernels,
                      flow_kernels,
                      quantization_kernels,
                      quantized_kernels,
                      integer_convolution_kernels,
                      random_kernels})
    for (KernelEntry& entry : family())
      check(entries.emplace(Key{entry.domain, entry.op_type}, entry).second, "a kernel is registered once");
  return entries;
}

}  // namespace

const KernelEntry* find_kernel(std::string_view op_type, std::string_view domain) {
  static const std::map<Key, KernelEntry> entries = build();
  auto found = entries.find({domain, op_type});
  return found == entries.end() ? nullptr : &found->second;
}

std::unique_ptr<Kernel> prepare_kernel(const KernelEntry& entry, const PrepareContext& context) {
  const auto is_strided = [](const TensorDesc& desc) { return !desc.strides.empty(); };
  const bool several =
      !context.followers.empty() || std::any_of(context.inputs.begin(), context.inputs.end(), is_strided);
  return entry.elementwise && several ? elementwise_group(context) : entry.prepare(context);
}

int Follower::other() const {
  auto operand = std::find_if(operands.begin(), operands.end(), [](int place) { return place >= 0; });
  return operand == operands.end() ? -1 : *operand;
}

Dims TensorDesc::stored_dims() const {
  Dims stored = dims;
  if (block == 0) return stored;
  stored[1] = (stored[1] + block - 1) / block;
  stored.push_back(block);
  return stored;
}

std::vector<int64_t> PrepareContext::known_ints(size_t index) const {
  if (!has_input(index) || !known[index])
    fail("kernel",
         "{}: its operand {} ('{}') must be known before the run, but it depends on data; make it a constant, or "
         "compute it from shapes",
         node.label(), index, node.input(index) ? node.input(index)->name : "");
  const TensorDesc& desc = inputs[index];
  return Tensor::copy_of(desc.dtype, desc.dims, known[index], desc.bytes()).to_int64();
}

}  // namespace tessera::kernels
