#include "tessera/comm/local/transfer.h"

#include <algorithm>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/comm/reduce.h"

namespace tessera::comm {
namespace {

void copy_bytes(void* to, const void* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

template <typename Byte>
Byte* shift(Byte* start, size_t bytes) {
  return start == nullptr ? nullptr : start + bytes;
}

std::byte* at(void* start, size_t bytes) {
  return shift(static_cast<std::byte*>(start), bytes);
}
const std::byte* at(const void* start, size_t bytes) {
  return shift(static_cast<const std::byte*>(start), bytes);
}

/// Member j's block [outer, counts[j], inner] within the whole [outer, Σ counts, inner]: `outer` runs of bytes.
struct Block {
  size_t run;     // bytes of a run, in the block and in the whole
  size_t offset;  // of the first run in the whole
  size_t stride;  // from run to run in the whole

  Block(const Operation& operation, int j)
      : run(byte_count(operation, operation.counts[j] * operation.inner)),
        offset(byte_count(operation, sum_of(operation.counts.first(j)) * operation.inner)),
        stride(byte_count(operation, sum_of(operation.counts) * operation.inner)) {}
};

void put_block(const Operation& operation, int j, const void* block, void* whole) {
  Block place(operation, j);
  if (place.run == 0) return;
  for (int64_t row = 0; row < operation.outer; ++row)
    copy_bytes(at(whole, place.offset + row * place.stride), at(block, row * place.run), place.run);
}

void get_block(const Operation& operation, int j, const void* whole, void* block) {
  Block place(operation, j);
  if (place.run == 0) return;
  for (int64_t row = 0; row < operation.outer; ++row)
    copy_bytes(at(block, row * place.run), at(whole, place.offset + row * place.stride), place.run);
}

/// Member j's input as member `me` reads it: its own at the original place.
const void* input_of(const Operation& operation, int me, std::span<const Entry> entries, int j) {
  return j == me ? operation.in : entries[j].in;
}

/// All members' blocks; each member begins with its own, so that they do not all read one member's memory at once.
void collect_blocks(const Operation& operation, int me, std::span<const Entry> entries) {
  int size = static_cast<int>(entries.size());
  for (int step = 0; step < size; ++step) {
    int j = (me + step) % size;
    put_block(operation, j, input_of(operation, me, entries, j), operation.out);
  }
}

/// Points at the inputs' bytes from `offset` on.
std::span<const void* const> inputs_at(std::span<const Entry> entries, size_t offset, Pointers& pointers) {
  for (size_t j = 0; j < entries.size(); ++j) pointers.inputs[j] = at(entries[j].in, offset);
  return pointers.inputs;
}

/// The same, as member `me` reads them.
std::span<const void* const> inputs_at(const Operation& operation, int me, std::span<const Entry> entries,
                                       size_t offset, Pointers& pointers) {
  inputs_at(entries, offset, pointers);
  pointers.inputs[me] = at(operation.in, offset);
  return pointers.inputs;
}

/// All members' whole inputs, to one of them.
void reduce_whole(const Operation& operation, int me, std::span<const Entry> entries, Pointers& pointers) {
  reduce_elements(operation.dtype, operation.reduction, inputs_at(operation, me, entries, 0, pointers),
                  std::span(&operation.out, 1), operation.count);
}

void reduce_block(const Operation& operation, int me, std::span<const Entry> entries, Pointers& pointers) {
  Block place(operation, me);
  for (int64_t row = 0; place.run > 0 && row < operation.outer; ++row) {
    void* out = at(operation.out, row * place.run);
    reduce_elements(operation.dtype, operation.reduction,
                    inputs_at(operation, me, entries, place.offset + row * place.stride, pointers), std::span(&out, 1),
                    operation.counts[me] * operation.inner);
  }
}

void exchange_blocks(const Operation& operation, int me, std::span<const Entry> entries) {
  int size = static_cast<int>(entries.size());
  for (int step = 0; step < size; ++step) {
    int j = (me + step) % size;
    int64_t sent_before = sum_of(std::span(entries[j].counts, me));
    int64_t received_before = sum_of(operation.recv_counts.first(j));
    copy_bytes(at(operation.out, byte_count(operation, received_before * operation.inner)),
               at(input_of(operation, me, entries, j), byte_count(operation, sent_before * operation.inner)),
               byte_count(operation, operation.recv_counts[j] * operation.inner));
  }
}

/// The bytes [begin, end) of a gather's result.
void collect_range(const Operation& operation, std::span<const Entry> entries, void* out, size_t begin, size_t end) {
  const int size = static_cast<int>(entries.size());
  for (int j = 0; j < size; ++j) {
    const Block place(operation, j);
    if (place.run == 0) continue;
    for (size_t row = begin / place.stride; row * place.stride < end; ++row) {
      const size_t start = row * place.stride + place.offset;
      const size_t first = std::max(begin, start), last = std::min(end, start + place.run);
      if (first < last) copy_bytes(at(out, first), at(entries[j].in, row * place.run + first - start), last - first);
    }
  }
}

int64_t piece_elements(const Operation& operation, size_t members) {
  constexpr size_t kLine = 64;
  const size_t share = byte_count(operation, shared_elements(operation)) / members;
  const size_t bytes = std::clamp(share / kLine * kLine, kLeastPieceBytes, kPieceBytes);
  return static_cast<int64_t>(bytes) * 8 / bits_of(operation.dtype);
}

/// Writes one piece of the result to every member that wants it.
void make_piece(const Operation& operation, int64_t piece, std::span<const Entry> entries, Pointers& pointers) {
  const int64_t most = piece_elements(operation, entries.size()), first = piece * most;
  const int64_t count = std::min(most, shared_elements(operation) - first);
  const size_t offset = byte_count(operation, first), bytes = byte_count(operation, count);
  const Entry& root = entries[operation.root];
  switch (operation.kind) {
    case Kind::broadcast:
      for (const Entry& entry : entries) copy_bytes(at(entry.out, offset), at(root.in, offset), bytes);
      return;
    case Kind::gather:
      return collect_range(operation, entries, root.out, offset, offset + bytes);
    case Kind::reduce: {
      void* out = at(root.out, offset);
      return reduce_elements(operation.dtype, operation.reduction, inputs_at(entries, offset, pointers),
                             std::span(&out, 1), count);
    }
    default:
      for (size_t j = 0; j < entries.size(); ++j) pointers.outputs[j] = at(entries[j].out, offset);
      return reduce_elements(operation.dtype, operation.reduction, inputs_at(entries, offset, pointers),
                             pointers.outputs, count);
  }
}

}  // namespace

void copy_for_others(const Operation& operation, int me, std::byte* to) {
  const size_t bytes = in_bytes(operation, me);
  size_t own = 0, own_bytes = 0;
  if ((operation.kind == Kind::reduce_scatter || operation.kind == Kind::all_to_all) && operation.outer == 1) {
    own = byte_count(operation, sum_of(operation.counts.first(me)) * operation.inner);
    own_bytes = byte_count(operation, operation.counts[me] * operation.inner);
  }
  copy_bytes(to, operation.in, own);
  copy_bytes(to + own + own_bytes, at(operation.in, own + own_bytes), bytes - own - own_bytes);
}

void pull(const Operation& operation, int me, std::span<const Entry> entries, Pointers& pointers) {
  bool at_root = me == operation.root;
  switch (operation.kind) {
    case Kind::all_reduce:
      return reduce_whole(operation, me, entries, pointers);
    case Kind::reduce:
      if (at_root) reduce_whole(operation, me, entries, pointers);
      return;
    case Kind::reduce_scatter:
      return reduce_block(operation, me, entries, pointers);
    case Kind::broadcast:
      return copy_bytes(operation.out, entries[operation.root].in, byte_count(operation, operation.count));
    case Kind::all_gather:
      return collect_blocks(operation, me, entries);
    case Kind::gather:
      if (at_root) collect_blocks(operation, me, entries);
      return;
    case Kind::scatter:
      return get_block(operation, me, entries[operation.root].in, operation.out);
    case Kind::all_to_all:
      return exchange_blocks(operation, me, entries);
    case Kind::barrier:
      return;
    case Kind::permute:
    case Kind::send:
    case Kind::recv:
      break;
  }
  check(false, "only kinds that all members take part in are pulled");
}

int64_t shared_elements(const Operation& operation) {
  switch (operation.kind) {
    case Kind::all_reduce:
    case Kind::broadcast:
    case Kind::reduce:
      return operation.count;
    case Kind::gather:
      return operation.outer * sum_of(operation.counts) * operation.inner;
    default:
      return 0;
  }
}

int64_t piece_count(const Operation& operation, size_t members) {
  const int64_t piece = piece_elements(operation, members);
  return (shared_elements(operation) + piece - 1) / piece;
}

bool share_pieces(const Operation& operation, int me, Slot& slot, Pointers& pointers) {
  int64_t pieces = piece_count(operation, slot.entries.size()), made = 0;
  const auto members = static_cast<int64_t>(slot.entries.size());
  for (int64_t step = 0; step < members; ++step) {
    int64_t owner = (me + step) % members;
    int64_t start = pieces * owner / members, end = pieces * (owner + 1) / members;
    auto claim = [&] { return start + slot.entries[owner].claimed.fetch_add(1, std::memory_order_relaxed); };
    for (int64_t piece = claim(); piece < end; piece = claim(), ++made)
      make_piece(operation, piece, slot.entries, pointers);
  }
  return made > 0 && slot.shared.fetch_add(made, std::memory_order_acq_rel) + made == pieces;
}

}  // namespace tessera::comm
