#include "tessera/comm/operation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/comm/reduce.h"

namespace tessera::comm {
namespace {

// Whether it moves blocks of a tensor's one dimension, with one count for each member.
bool is_blocked(const CollectiveTraits& traits) {
  return traits.block == BlockSide::operand || traits.block == BlockSide::result;
}

void validate_counts(const Operation& operation, std::span<const int64_t> counts, std::string_view what, int size) {
  if (counts.size() != static_cast<size_t>(size))
    fail("comm", "{}: {} {} for {} members; give one per member", describe(operation), counts.size(), what, size);
  for (int64_t count : counts)
    if (count < 0) fail("comm", "{}: {} [{}] has a negative entry", describe(operation), what, fmt::join(counts, ","));
}

void validate_peer(const Operation& operation, int peer, std::string_view what, int size) {
  if (peer < -1 || peer >= size)
    fail("comm", "{}: {} is member {}, but the group has members 0 to {}", describe(operation), what, peer, size - 1);
}

/// Every separately moved run of elements must be whole bytes.
void validate_bytes(const Operation& operation, bool blocked) {
  int bits = bits_of(operation.dtype);
  if (bits == 0) fail("comm", "{}: elements of type {} cannot be moved", describe(operation), name_of(operation.dtype));
  bool cut = blocked || operation.kind == Kind::all_to_all;
  if (bits % 8 != 0 && cut && operation.inner * bits % 8 != 0)
    fail("comm", "{}: blocks of {} {} elements do not fill whole bytes; split another dimension", describe(operation),
         operation.inner, name_of(operation.dtype));
}

uint64_t mix(uint64_t hash, uint64_t word) {
  hash ^= word + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdULL;
}

}  // namespace

int64_t sum_of(std::span<const int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

std::string describe(const Operation& operation) {
  const CollectiveTraits& row = traits_of(operation.kind);
  std::string text(row.name);
  if (row.reduces) text += fmt::format(" {}", name_of(operation.reduction));
  if (operation.kind == Kind::all_to_all)
    text += fmt::format(" {}[send {}; recv {}]x{}", name_of(operation.dtype), fmt::join(operation.counts, ","),
                        fmt::join(operation.recv_counts, ","), operation.inner);
  else if (is_blocked(row))
    text += fmt::format(" {}[{}, {}, {}]", name_of(operation.dtype), operation.outer, fmt::join(operation.counts, "+"),
                        operation.inner);
  else if (operation.kind != Kind::barrier)
    text += fmt::format(" {}[{}]", name_of(operation.dtype), operation.count);
  if (row.root != RootRole::none) text += fmt::format(" root {}", operation.root);
  bool permute = operation.kind == Kind::permute;
  if (permute || operation.kind == Kind::recv) text += fmt::format(" from {}", operation.from);
  if (permute || operation.kind == Kind::send) text += fmt::format(" to {}", operation.to);
  if (!operation.label.empty()) text += fmt::format(" '{}'", operation.label);
  return text;
}

void validate(const Operation& operation, int member, int size) {
  const CollectiveTraits& row = traits_of(operation.kind);
  if (operation.kind == Kind::barrier) return;
  if (operation.count < 0 || operation.outer < 0 || operation.inner < 0)
    fail("comm", "{}: a negative extent", describe(operation));
  if (is_blocked(row)) validate_counts(operation, operation.counts, "counts", size);
  if (operation.kind == Kind::all_to_all) {
    validate_counts(operation, operation.counts, "send counts", size);
    validate_counts(operation, operation.recv_counts, "receive counts", size);
  }
  if (row.root != RootRole::none && (operation.root < 0 || operation.root >= size))
    fail("comm", "{}: root {} is not in the group's members 0 to {}", describe(operation), operation.root, size - 1);
  if (operation.kind == Kind::permute || operation.kind == Kind::send)
    validate_peer(operation, operation.to, "the receiver", size);
  if (operation.kind == Kind::permute || operation.kind == Kind::recv)
    validate_peer(operation, operation.from, "the sender", size);
  validate_bytes(operation, is_blocked(row));
  if (row.reduces && !can_reduce(operation.dtype, operation.reduction))
    fail("comm", "{}: {} has no {}; cast it to a wider type first", describe(operation), name_of(operation.dtype),
         name_of(operation.reduction));
  if (in_bytes(operation, member) > 0 && operation.in == nullptr)
    fail("comm", "{}: no input buffer on member {}", describe(operation), member);
  if (out_bytes(operation, member) > 0 && operation.out == nullptr)
    fail("comm", "{}: no output buffer on member {}", describe(operation), member);
}

uint64_t signature(const Operation& operation) {
  // A receiver sees its sender's operation, so both sides of a pair count as one kind.
  Kind kind = operation.kind == Kind::recv ? Kind::send : operation.kind;
  const CollectiveTraits& row = traits_of(kind);
  uint64_t hash = mix(0, static_cast<uint64_t>(kind));
  if (kind == Kind::barrier) return hash;
  hash = mix(hash, static_cast<uint64_t>(operation.dtype));
  if (row.reduces) hash = mix(hash, static_cast<uint64_t>(operation.reduction));
  if (row.root != RootRole::none) hash = mix(hash, static_cast<uint64_t>(operation.root));
  if (kind == Kind::all_to_all) return mix(hash, static_cast<uint64_t>(operation.inner));
  if (!is_blocked(row)) return mix(hash, static_cast<uint64_t>(operation.count));
  hash = mix(mix(hash, static_cast<uint64_t>(operation.outer)), static_cast<uint64_t>(operation.inner));
  for (int64_t count : operation.counts) hash = mix(hash, static_cast<uint64_t>(count));
  return hash;
}

size_t byte_count(const Operation& operation, int64_t elements) {
  return bytes_of(operation.dtype, elements);
}

namespace {

int64_t block_elements(const Operation& operation, int64_t count) {
  return operation.outer * count * operation.inner;
}

int64_t in_elements(const Operation& operation, int member) {
  switch (operation.kind) {
    case Kind::all_reduce:
    case Kind::reduce:
      return operation.count;
    case Kind::broadcast:
      return member == operation.root ? operation.count : 0;
    case Kind::permute:
    case Kind::send:
      return operation.to >= 0 ? operation.count : 0;
    case Kind::all_gather:
    case Kind::gather:
      return block_elements(operation, operation.counts[member]);
    case Kind::reduce_scatter:
      return block_elements(operation, sum_of(operation.counts));
    case Kind::scatter:
      return member == operation.root ? block_elements(operation, sum_of(operation.counts)) : 0;
    case Kind::all_to_all:
      return sum_of(operation.counts) * operation.inner;
    case Kind::recv:
    case Kind::barrier:
      return 0;
  }
  return 0;
}

int64_t out_elements(const Operation& operation, int member) {
  switch (operation.kind) {
    case Kind::all_reduce:
    case Kind::broadcast:
    case Kind::permute:
    case Kind::recv:
      return operation.count;
    case Kind::reduce:
      return member == operation.root ? operation.count : 0;
    case Kind::all_gather:
      return block_elements(operation, sum_of(operation.counts));
    case Kind::gather:
      return member == operation.root ? block_elements(operation, sum_of(operation.counts)) : 0;
    case Kind::reduce_scatter:
    case Kind::scatter:
      return block_elements(operation, operation.counts[member]);
    case Kind::all_to_all:
      return sum_of(operation.recv_counts) * operation.inner;
    case Kind::send:
    case Kind::barrier:
      return 0;
  }
  return 0;
}

}  // namespace

size_t in_bytes(const Operation& operation, int member) {
  return byte_count(operation, in_elements(operation, member));
}

size_t out_bytes(const Operation& operation, int member) {
  return byte_count(operation, out_elements(operation, member));
}

void KeptOperation::assign(const Operation& operation) {
  const size_t counts = operation.counts.size(), recv_counts = operation.recv_counts.size();
  check(counts + recv_counts <= room_.size(), "there is room for an operation's counts");
  std::copy_n(operation.counts.begin(), counts, room_.begin());
  std::copy_n(operation.recv_counts.begin(), recv_counts, room_.begin() + static_cast<int64_t>(counts));
  size_t length = std::min(operation.label.size(), label_.size());
  std::copy_n(operation.label.begin(), length, label_.begin());
  operation_ = operation;
  operation_.counts = room_.first(counts);
  operation_.recv_counts = room_.subspan(counts, recv_counts);
  operation_.label = {label_.data(), length};
}

}  // namespace tessera::comm
