#include "tessera/comm/local_transfer.h"

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

/// All members' blocks; each member begins with its own, so that they do not all read one member's memory at once.
void collect_blocks(const Operation& operation, int me, std::span<const Entry> entries) {
  int size = static_cast<int>(entries.size());
  for (int step = 0; step < size; ++step) {
    int j = (me + step) % size;
    put_block(operation, j, entries[j].in, operation.out);
  }
}

void reduce_block(const Operation& operation, int me, std::span<const void* const> inputs) {
  int64_t before = sum_of(operation.counts.first(me));
  int64_t total = sum_of(operation.counts);
  int64_t run = operation.counts[me] * operation.inner;
  for (int64_t row = 0; run > 0 && row < operation.outer; ++row)
    reduce_elements(operation.dtype, operation.reduction, inputs, (row * total + before) * operation.inner, run,
                    at(operation.out, byte_count(operation, row * run)));
}

void exchange_blocks(const Operation& operation, int me, std::span<const Entry> entries) {
  int size = static_cast<int>(entries.size());
  for (int step = 0; step < size; ++step) {
    int j = (me + step) % size;
    int64_t sent_before = sum_of(entries[j].operation->counts.first(me));
    int64_t received_before = sum_of(operation.recv_counts.first(j));
    copy_bytes(at(operation.out, byte_count(operation, received_before * operation.inner)),
               at(entries[j].in, byte_count(operation, sent_before * operation.inner)),
               byte_count(operation, operation.recv_counts[j] * operation.inner));
  }
}

std::span<const void* const> gather_inputs(std::span<const Entry> entries, std::span<const void*> inputs) {
  for (size_t j = 0; j < entries.size(); ++j) inputs[j] = entries[j].in;
  return inputs;
}

/// First element of member j's chunk of a two-phase all_reduce.
int64_t chunk_start(const Operation& operation, size_t j, size_t members) {
  int64_t line = std::max<int64_t>(1, 64 * 8 / bits_of(operation.dtype));
  int64_t share = (operation.count + static_cast<int64_t>(members) - 1) / static_cast<int64_t>(members);
  int64_t chunk = (share + line - 1) / line * line;
  return std::min(operation.count, static_cast<int64_t>(j) * chunk);
}

}  // namespace

void pull(const Operation& operation, int me, std::span<const Entry> entries, std::span<const void*> inputs) {
  bool at_root = me == operation.root;
  switch (operation.kind) {
    case Kind::all_reduce:
      return reduce_elements(operation.dtype, operation.reduction, gather_inputs(entries, inputs), 0, operation.count,
                             operation.out);
    case Kind::reduce:
      if (at_root)
        reduce_elements(operation.dtype, operation.reduction, gather_inputs(entries, inputs), 0, operation.count,
                        operation.out);
      return;
    case Kind::reduce_scatter:
      return reduce_block(operation, me, gather_inputs(entries, inputs));
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

void reduce_chunk(const Operation& operation, int me, std::span<const Entry> entries, std::span<const void*> inputs) {
  int64_t first = chunk_start(operation, me, entries.size());
  int64_t count = chunk_start(operation, me + 1, entries.size()) - first;
  reduce_elements(operation.dtype, operation.reduction, gather_inputs(entries, inputs), first, count,
                  at(operation.out, byte_count(operation, first)));
}

void copy_chunks(const Operation& operation, int me, std::span<const Entry> entries) {
  for (size_t step = 1; step < entries.size(); ++step) {
    size_t j = (me + step) % entries.size();
    int64_t first = chunk_start(operation, j, entries.size());
    int64_t count = chunk_start(operation, j + 1, entries.size()) - first;
    size_t offset = byte_count(operation, first);
    copy_bytes(at(operation.out, offset), at(entries[j].operation->out, offset), byte_count(operation, count));
  }
}

}  // namespace tessera::comm
