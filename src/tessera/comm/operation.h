#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/comm/communicator.h"

/// Common to every backend: an Operation's description, its validity, and its bytes.
namespace tessera::comm {

/// "all_reduce sum float32[1000] 'grad.w'": an operation for messages, without its buffers.
std::string describe(const Operation& operation);

/// Throws a user error if no group of `size` members could run this on member `member`: a root or peer is outside the
/// group, counts are negative or not one per member, the dtype cannot be reduced or does not fill whole bytes, or a
/// buffer is missing.
void validate(const Operation& operation, int member, int size);

/// Equal for operations that members may run together. For all_to_all it leaves out the counts, which differ by member;
/// for send and recv it holds only what both must agree on.
uint64_t signature(const Operation& operation);

/// Bytes of `elements` dense elements.
size_t byte_count(const Operation& operation, int64_t elements);

/// Bytes of a member's `in` and `out`; zero if the kind does not use that buffer on this member.
size_t in_bytes(const Operation& operation, int member);
size_t out_bytes(const Operation& operation, int member);

int64_t sum_of(std::span<const int64_t> counts);

/// An operation that outlives its caller's: it has copies of the counts and label. Its buffers stay the caller's.
class KeptOperation {
 public:
  KeptOperation() = default;
  KeptOperation(const KeptOperation&) = delete;
  KeptOperation& operator=(const KeptOperation&) = delete;

  /// Room for counts and, after them, recv_counts: two per member of the group, for operations that have counts.
  void set_room(std::span<int64_t> room) { room_ = room; }
  void assign(const Operation& operation);

  const Operation* operator->() const { return &operation_; }
  const Operation& operator*() const { return operation_; }

 private:
  Operation operation_;
  std::span<int64_t> room_;
  std::array<char, 64> label_{};  // longer labels are cut: they serve messages only
};

/// A kept operation with room of its own. Assigning allocates only if it needs more counts than before.
class OwnedOperation : public KeptOperation {
 public:
  void assign(const Operation& operation) {
    const size_t counts = operation.counts.size() + operation.recv_counts.size();
    if (counts > counts_.size()) counts_.resize(counts);
    set_room(counts_);
    KeptOperation::assign(operation);
  }

 private:
  std::vector<int64_t> counts_;
};

}  // namespace tessera::comm
