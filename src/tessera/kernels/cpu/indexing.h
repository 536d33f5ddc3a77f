#pragma once

#include "tessera/kernels/cpu/dispatch.h"

/// The groups that make up the indexing family, one file each, and what they share.
namespace tessera::kernels {

std::vector<KernelEntry> gathering_kernels();   // Gather, GatherND, GatherElements, GatherShard
std::vector<KernelEntry> scattering_kernels();  // ScatterND, ScatterElements
std::vector<KernelEntry> choosing_kernels();    // OneHot, TopK

/// int32 or int64 indices, read as int64.
class Indices {
 public:
  Indices(const void* data, DType dtype) : data_(data), wide_(dtype == DType::int64) {}
  int64_t operator[](int64_t at) const {
    return wide_ ? static_cast<const int64_t*>(data_)[at] : static_cast<const int32_t*>(data_)[at];
  }

 private:
  const void* data_;
  bool wide_;
};

/// A user error naming the node unless the operand holds int32 or int64 elements.
void check_index_type(const PrepareContext& context, size_t operand);

/// Throws a user error that names the operator and the index unless -extent <= index < extent; indices come with
/// inputs.
inline void check_index(const std::string& label, int64_t index, int64_t extent) {
  if (index < -extent || index >= extent)
    fail("kernel", "{}: the index {} is outside [{}, {})", label, index, -extent, extent);
}

/// For each index tuple (the last dimension of the indices), the tuple's place in the operand, in slices.
struct TuplePlan {
  int64_t batches = 1;       ///< product of the batch dimensions
  int64_t tuples = 1;        ///< per batch
  int64_t depth = 0;         ///< indices in a tuple
  int64_t slice = 1;         ///< elements that a tuple names
  int64_t batch_slices = 1;  ///< slices of the operand per batch
  Dims extents, strides;     ///< of the indexed dimensions; strides in slices

  TuplePlan(const Node& node, const Dims& operand, const Dims& indices, int64_t batch_dims);
  int64_t total() const { return batches * tuples; }
  /// The slice of tuple `at`, counted over all batches; throws if an index is out of range.
  int64_t slice_of(const std::string& label, const Indices& indices, int64_t at) const;
  /// The same for indices that have been checked.
  int64_t checked_slice_of(const Indices& indices, int64_t at) const;
};

}  // namespace tessera::kernels
