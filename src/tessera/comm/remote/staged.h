#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/comm/operation.h"

namespace tessera::comm {

/// An operation in the form that message libraries know: members' blocks one after the other, with elements that the
/// library can add. For example, an all_gather of float32 [2, 1+3, 5] on member 0:
///
///   library:  counts() {10, 30}: member 0's [2, 1, 5], then member 1's [2, 3, 5], in a buffer of ours
///   finish(): writes them to `out` as [2, 4, 5]
///
/// If outer is 1, the library reads and writes the caller's buffers. If the library reduces, 16-bit floats are widened
/// to float32 here and rounded by finish(), bool is reduced as 0 and 1 of uint8, and a mean is the library's sum,
/// divided by finish(). If the library only moves data and we reduce (reduce.h), none of this happens.
class Staged {
 public:
  Staged(const Operation& operation, int member, int size, bool library_adds);

  const Operation& operation() const { return *operation_; }
  int member() const { return member_; }
  int size() const { return static_cast<int>(size_); }

  /// The buffers that the library reads and writes. Null if this member has no such buffer.
  const void* in() const { return in_; }
  void* out() const { return out_; }
  /// Elements of kinds without blocks; in reductions they are of dtype(), else of element_bytes().
  int64_t count() const { return count_; }
  /// Elements of each member's block; in an all_to_all, those that this member sends to each, and receives from each.
  const std::vector<int64_t>& counts() const { return counts_; }
  const std::vector<int64_t>& recv_counts() const { return recv_counts_; }
  size_t element_bytes() const { return element_bytes_; }
  /// For reductions only. If the library reduces, the type is float32, float64 or an integer, and the reduction sum,
  /// max or min.
  DType dtype() const { return dtype_; }
  Reduction reduction() const { return reduction_; }
  /// out[i] = the library's reduction of a[i] and b[i]; any of the buffers may be the same.
  void combine(void* out, const void* a, const void* b, int64_t count) const;

  /// Brings the library's result to the caller's `out`. Called once, when the library has finished.
  void finish();

 private:
  using Buffer = std::unique_ptr<std::byte[]>;

  void stage_moves();
  void stage_reduction();
  /// Between [outer, Σ counts, inner] and members' blocks one after the other.
  void pack(const std::byte* whole, std::byte* blocks) const;
  void unpack(const std::byte* blocks, std::byte* whole) const;
  template <typename Copy>
  void each_row(Copy copy) const;

  OwnedOperation operation_;
  int member_;
  size_t size_;
  const void* in_ = nullptr;
  void* out_ = nullptr;
  int64_t count_ = 0;
  std::vector<int64_t> counts_, recv_counts_;
  size_t element_bytes_ = 1;
  DType dtype_;
  Reduction reduction_;
  bool packs_ = false, unpacks_ = false, widens_ = false;
  Buffer staged_in_, staged_out_;
  int64_t result_count_ = 0;  // elements of this member's result, if the library reduces
};

}  // namespace tessera::comm
