#include "tessera/comm/remote/direct_plan.h"

#include <cstring>
#include <numeric>
#include <set>

namespace tessera::comm {
namespace {

using Range = DirectPlan::Range;

/// The most bytes that one member should send to bring the same data to all others, and the same for a tensor if
/// members share links. Beyond that the fewest bytes count, which libraries' rings and trees move.
constexpr size_t kSmall = 64 << 10;

/// Block j of consecutive blocks.
Range block_of(const std::vector<int64_t>& counts, size_t j) {
  return {std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(j), int64_t{0}), counts[j]};
}

/// Bytes of an operation without blocks, once for each of the other members.
size_t to_all_others(const Operation& operation, int size) {
  return byte_count(operation, operation.count) * static_cast<size_t>(size - 1);
}

size_t whole_bytes(const Operation& operation) {
  const bool blocked = operation.kind == Kind::all_gather || operation.kind == Kind::reduce_scatter;
  return byte_count(operation,
                    blocked ? operation.outer * sum_of(operation.counts) * operation.inner : operation.count);
}

}  // namespace

bool DirectPlan::share_links(std::span<const int64_t> hosts) {
  const std::set<int64_t> different(hosts.begin(), hosts.end());
  return different.size() > 1 && different.size() < hosts.size();
}

bool DirectPlan::suits(const Operation& operation, const Group& group) {
  const bool few = group.size <= group.most_members;
  switch (operation.kind) {
    case Kind::permute:
      return true;
    case Kind::send:
    case Kind::recv:
    case Kind::barrier:
      return false;
    case Kind::broadcast:
      return few && (group.size <= 2 || to_all_others(operation, group.size) <= kSmall);
    case Kind::gather:
    case Kind::scatter:
    case Kind::all_to_all:
      return few;
    case Kind::all_reduce:
    case Kind::all_gather:
    case Kind::reduce_scatter:
    case Kind::reduce:
      return few && (!group.shares_links || whole_bytes(operation) <= kSmall);
  }
  return false;
}

bool DirectPlan::takes_one_part(const Operation& operation, int size, size_t most) {
  return to_all_others(operation, size) <= most;
}

DirectPlan::DirectPlan(const Staged& staged, size_t most_in_one_part) : staged_(staged) {
  const Kind kind = staged.operation().kind;
  reduces_ = kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::reduce_scatter;
  width_ = reduces_ ? tessera::bytes_of(staged.dtype(), 1) : staged.element_bytes();
  moves_ = !reduces_ ||
           (kind != Kind::reduce_scatter && !takes_one_part(staged.operation(), staged.size(), most_in_one_part));
}

Range DirectPlan::owned_by(size_t j) const {
  const Operation& operation = staged_.operation();
  if (operation.kind == Kind::reduce_scatter) return block_of(staged_.counts(), j);
  const int64_t count = staged_.count(), size = staged_.size(), owner = static_cast<int64_t>(j);
  if (moves_) return {count * owner / size, count * (owner + 1) / size - count * owner / size};
  return operation.kind == Kind::all_reduce || owner == operation.root ? Range{0, count} : Range{};
}

Range DirectPlan::sent_to(size_t j) const {
  const Operation& operation = staged_.operation();
  const bool root = staged_.member() == operation.root, to_root = static_cast<int>(j) == operation.root;
  switch (operation.kind) {
    case Kind::all_reduce:
      return {0, owned_by(me()).count};
    case Kind::reduce:
      return to_root ? Range{0, owned_by(me()).count} : Range{};
    case Kind::all_gather:
      return {0, staged_.counts()[me()]};
    case Kind::gather:
      return to_root ? Range{0, staged_.counts()[me()]} : Range{};
    case Kind::scatter:
      return root ? block_of(staged_.counts(), j) : Range{};
    case Kind::all_to_all:
      return block_of(staged_.counts(), j);
    case Kind::broadcast:
      return root ? Range{0, staged_.count()} : Range{};
    default:
      return static_cast<int>(j) == operation.to ? Range{0, staged_.count()} : Range{};
  }
}

Range DirectPlan::received_from(size_t j) const {
  const Operation& operation = staged_.operation();
  const bool root = staged_.member() == operation.root, from_root = static_cast<int>(j) == operation.root;
  switch (operation.kind) {
    case Kind::all_reduce:
      return owned_by(j);
    case Kind::reduce:
      return root ? owned_by(j) : Range{};
    case Kind::all_gather:
      return block_of(staged_.counts(), j);
    case Kind::gather:
      return root ? block_of(staged_.counts(), j) : Range{};
    case Kind::scatter:
      return from_root ? Range{0, staged_.counts()[me()]} : Range{};
    case Kind::all_to_all:
      return block_of(staged_.recv_counts(), j);
    case Kind::broadcast:
      return from_root ? Range{0, staged_.count()} : Range{};
    default:
      return static_cast<int>(j) == operation.from ? Range{0, staged_.count()} : Range{};
  }
}

void DirectPlan::copy_own(const std::byte* source) const {
  const Operation& operation = staged_.operation();
  auto* out = static_cast<std::byte*>(staged_.out());
  const Range own = sent_to(me());
  if (own.count > 0) {
    const std::byte* from = source + bytes_of(own.offset);
    std::byte* to = out + bytes_of(received_from(me()).offset);
    if (from != to) std::memcpy(to, from, bytes_of(own.count));
  }
  if (operation.kind == Kind::permute && operation.from < 0 && staged_.count() > 0)
    std::memset(out, 0, bytes_of(staged_.count()));
}

}  // namespace tessera::comm
