#pragma once

#include "tessera/kernels/cpu/library/dispatch.h"

/// The groups that make up the indexing family, one file each, and what they share.
namespace tessera::kernels {

std::vector<KernelEntry> gathering_kernels();   // Gather, GatherND, GatherElements, and in a shard
std::vector<KernelEntry> scattering_kernels();  // ScatterND, ScatterElements, and in a shard
std::vector<KernelEntry> choosing_kernels();    // OneHot, TopK

/// int32 or int64 indices, read as int64.
class Indices {
 public:
  Indices(const void* data, DType dtype) : data_(data), wide_(dtype == DType::int64) {}
  int64_t operator[](int64_t at) const {
    return wide_ ? static_cast<const int64_t*>(data_)[at] : static_cast<const int32_t*>(data_)[at];
  }
  /// Calls visit(elements) with them as int64_t or int32_t, for loops that do not ask each time.
  template <typename Visit>
  void typed(const Visit& visit) const {
    wide_ ? visit(static_cast<const int64_t*>(data_)) : visit(static_cast<const int32_t*>(data_));
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

/// A tensor that is not split along its indexed dimensions.
struct Unsplit {
  /// The place of an index in a dimension of that extent; throws if there is none.
  int64_t place(const KernelArgs&, const std::string& label, int64_t index, int64_t extent, int64_t /*at*/ = 0) const {
    check_index(label, index, extent);
    return index < 0 ? index + extent : index;
  }
};

/// A shard of a tensor that is split along an indexed dimension. Two operands after the operator's own say which: the
/// shard's first index, and the whole extent, by which indices count.
class Shard {
 public:
  /// Reads the types of operands `first` and `first` + 1, which must have `count` elements.
  Shard(const PrepareContext& context, size_t first, int64_t count);
  /// The place in the shard of a whole tensor's index along dimension `at`; -1 if it is in another shard. Throws if the
  /// whole tensor does not have it.
  int64_t place(const KernelArgs& args, const std::string& label, int64_t index, int64_t extent, int64_t at = 0) const {
    const int64_t whole = Indices(args.inputs[first_ + 1], extents_)[at];
    check_index(label, index, whole);
    const int64_t local = (index < 0 ? index + whole : index) - Indices(args.inputs[first_], offsets_)[at];
    return local >= 0 && local < extent ? local : -1;
  }

 private:
  size_t first_;
  DType offsets_, extents_;
};

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
  /// The slice of tuple `at`, counted over all batches, in an operand that is Unsplit or a Shard; -1 if it is in
  /// another shard. Throws if an index is out of range.
  template <typename Part>
  int64_t slice_in(const Part& part, const KernelArgs& args, const std::string& label, const Indices& indices,
                   int64_t at) const {
    int64_t slice = at / tuples * batch_slices;
    bool here = true;
    for (int64_t d = 0; d < depth; ++d) {
      const int64_t place = part.place(args, label, indices[at * depth + d], extents[d], d);
      here &= place >= 0;
      slice += place * strides[d];
    }
    return here ? slice : -1;
  }
};

}  // namespace tessera::kernels
