#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/comm/communicator.h"

/// What every backend needs to know about an Operation: its words, its validity, and its bytes.
namespace tessera::comm {

/// "all_reduce sum float32[1000] 'grad.w'": an operation for messages, without its buffers.
std::string describe(const Operation& operation);

/// Throws a user error if no group of `size` members could run this as member `member`: a root or peer outside the
/// group, counts that are negative or not one per member, a dtype that cannot be reduced or does not fill whole bytes,
/// a missing buffer.
void validate(const Operation& operation, int member, int size);

/// Equal for operations that members may run together. Of all_to_all it leaves out the counts, which differ by member;
/// of send and recv it says only what both must agree on.
uint64_t signature(const Operation& operation);

/// Bytes of `elements` dense elements.
size_t byte_count(const Operation& operation, int64_t elements);

/// Bytes of a member's `in` and `out`; zero where the kind does not use that buffer on this member.
size_t in_bytes(const Operation& operation, int member);
size_t out_bytes(const Operation& operation, int member);

int64_t sum_of(std::span<const int64_t> counts);

/// An operation kept beyond its caller's: its counts and label lie beside it. Its buffers stay the caller's.
class KeptOperation {
 public:
  KeptOperation() = default;
  KeptOperation(const KeptOperation&) = delete;
  KeptOperation& operator=(const KeptOperation&) = delete;

  /// Where counts and, after them, recv_counts are kept: two per member of the group, of operations that have counts.
  void set_room(std::span<int64_t> room) { room_ = room; }
  void assign(const Operation& operation);

  const Operation* operator->() const { return &operation_; }
  const Operation& operator*() const { return operation_; }

 private:
  Operation operation_;
  std::span<int64_t> room_;
  std::array<char, 64> label_{};  // longer labels are cut: they serve messages only
};

/// The same with room of its own. Assigning allocates nothing once as many counts have been seen.
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
