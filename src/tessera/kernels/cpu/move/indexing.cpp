#include "tessera/kernels/cpu/move/indexing.h"

#include "tessera/kernels/registry.h"

namespace tessera::kernels {

void check_index_type(const PrepareContext& context, size_t operand) {
  const DType dtype = context.inputs[operand].dtype;
  if (dtype != DType::int32 && dtype != DType::int64)
    fail("kernel", "{}: indices are int32 or int64, not {}", context.node.label(), name_of(dtype));
}

Shard::Shard(const PrepareContext& context, size_t first, int64_t count) : first_(first) {
  for (size_t operand : {first, first + 1}) {
    check_index_type(context, operand);
    if (context.inputs[operand].count() != count)
      fail("kernel", "{}: operand {} has {} elements; a shard has an offset and an extent for each of {} dimensions",
           context.node.label(), operand, context.inputs[operand].count(), count);
  }
  offsets_ = context.inputs[first].dtype;
  extents_ = context.inputs[first + 1].dtype;
}

TuplePlan::TuplePlan(const Node& node, const Dims& operand, const Dims& indices, int64_t batch_dims) {
  const int64_t rank = static_cast<int64_t>(operand.size());
  if (indices.empty() || batch_dims < 0 || batch_dims >= static_cast<int64_t>(indices.size()) ||
      batch_dims + indices.back() > rank)
    fail("kernel", "{}: the indices' last dimension and batch_dims={} do not fit an operand of {} dimensions",
         node.label(), batch_dims, rank);
  for (int64_t d = 0; d < batch_dims; ++d)
    if (indices[d] != operand[d])
      fail("kernel", "{}: batch dimension {} has extent {} in the data and {} in the indices; they must be equal",
           node.label(), d, operand[d], indices[d]);
  depth = indices.back();
  for (int64_t d = 0; d < batch_dims; ++d) batches *= operand[d];
  for (size_t d = batch_dims; d + 1 < indices.size(); ++d) tuples *= indices[d];
  for (int64_t d = batch_dims + depth; d < rank; ++d) slice *= operand[d];
  extents.assign(operand.begin() + batch_dims, operand.begin() + batch_dims + depth);
  strides.assign(depth, 1);
  for (int64_t d = depth; d-- > 0;) {
    strides[d] = batch_slices;
    batch_slices *= extents[d];
  }
}

std::vector<KernelEntry> indexing_kernels() {
  std::vector<KernelEntry> all;
  for (auto group : {gathering_kernels, scattering_kernels, choosing_kernels}) {
    std::vector<KernelEntry> entries = group();
    all.insert(all.end(), std::make_move_iterator(entries.begin()), std::make_move_iterator(entries.end()));
  }
  return all;
}

}  // namespace tessera::kernels
