#include "tessera/comm/gloo/gloo_collective.h"

#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/reduce.h>

#include <cstring>

#include "tessera/base/error.h"
#include "tessera/comm/reduce.h"

namespace tessera::comm {
namespace {

using Counts = std::vector<int64_t>;

/// A collective with what all of Gloo's options want.
struct Call {
  const std::shared_ptr<GlooContext>& context;
  Staged& staged;
  uint32_t tag;

  const Operation& operation() const { return staged.operation(); }
  bool is_root() const { return staged.member() == operation().root; }
  void* in() const { return const_cast<void*>(staged.in()); }
};

/// Calls visit(T{}) with an unsigned integer of so many bytes: what Gloo knows of an element.
template <typename Visit>
void with_width(size_t bytes, Visit visit) {
  switch (bytes) {
    case 1:
      return visit(uint8_t{});
    case 2:
      return visit(uint16_t{});
    case 4:
      return visit(uint32_t{});
    default:
      check(bytes == 8, "reduced elements have 1, 2, 4 or 8 bytes");
      return visit(uint64_t{});
  }
}

auto reduce_function(const Staged& staged) {
  return [&staged](void* out, const void* a, const void* b, size_t count) {
    staged.combine(out, a, b, static_cast<int64_t>(count));
  };
}

void all_reduce(const Call& call) {
  gloo::AllreduceOptions options(call.context);
  with_width(bytes_of(call.staged.dtype(), 1), [&](auto element) {
    auto* out = static_cast<decltype(element)*>(call.staged.out());
    auto* in = static_cast<decltype(element)*>(call.in());
    const auto count = static_cast<size_t>(call.staged.count());
    if (in != out) options.setInput(in, count);
    options.setOutput(out, count);
  });
  options.setReduceFunction(reduce_function(call.staged));
  options.setTag(call.tag);
  gloo::allreduce(options);
}

void reduce(const Call& call) {
  gloo::ReduceOptions options(call.context);
  // The others' outputs are Gloo's scratch memory.
  std::vector<std::byte> scratch;
  with_width(bytes_of(call.staged.dtype(), 1), [&](auto element) {
    using T = decltype(element);
    const auto count = static_cast<size_t>(call.staged.count());
    auto* in = static_cast<T*>(call.in());
    auto* out = static_cast<T*>(call.staged.out());
    if (!call.is_root()) {
      scratch.resize(count * sizeof(T));
      out = reinterpret_cast<T*>(scratch.data());
    }
    if (in != out) options.setInput(in, count);
    options.setOutput(out, count);
  });
  options.setReduceFunction(reduce_function(call.staged));
  options.setRoot(call.operation().root);
  options.setTag(call.tag);
  gloo::reduce(options);
}

void exchange(const Call& call, void* in, Counts sends, void* out, Counts receives, size_t element_bytes) {
  for (Counts* counts : {&sends, &receives})
    for (int64_t& count : *counts) count *= static_cast<int64_t>(element_bytes);
  gloo::AlltoallvOptions options(call.context);
  options.setInput(static_cast<uint8_t*>(in), std::move(sends));
  options.setOutput(static_cast<uint8_t*>(out), std::move(receives));
  options.setTag(call.tag);
  gloo::alltoallv(options);
}

/// Counts that are zero for all but one member.
Counts only(int member, int64_t count, size_t size) {
  Counts counts(size);
  counts[static_cast<size_t>(member)] = count;
  return counts;
}

void gather(const Call& call) {
  const Counts& counts = call.staged.counts();
  const Counts sends = only(call.operation().root, counts[static_cast<size_t>(call.staged.member())], counts.size());
  exchange(call, call.in(), sends, call.staged.out(), call.is_root() ? counts : Counts(counts.size()),
           call.staged.element_bytes());
}

void scatter(const Call& call) {
  const Counts& counts = call.staged.counts();
  const Counts receives = only(call.operation().root, counts[static_cast<size_t>(call.staged.member())], counts.size());
  exchange(call, call.in(), call.is_root() ? counts : Counts(counts.size()), call.staged.out(), receives,
           call.staged.element_bytes());
}

void reduce_scatter(const Call& call) {
  const Counts& counts = call.staged.counts();
  const int64_t mine = counts[static_cast<size_t>(call.staged.member())];
  const size_t width = bytes_of(call.staged.dtype(), 1), block = static_cast<size_t>(mine) * width;
  auto blocks = std::make_unique_for_overwrite<std::byte[]>(block * counts.size());
  exchange(call, call.in(), counts, blocks.get(), Counts(counts.size(), mine), width);
  std::vector<const void*> inputs;
  for (size_t j = 0; j < counts.size(); ++j) inputs.push_back(blocks.get() + j * block);
  void* out = call.staged.out();
  if (mine > 0) reduce_elements(call.staged.dtype(), call.staged.reduction(), inputs, {&out, 1}, mine);
}

void all_gather(const Call& call) {
  std::vector<size_t> bytes;
  for (int64_t count : call.staged.counts()) bytes.push_back(static_cast<size_t>(count) * call.staged.element_bytes());
  gloo::AllgathervOptions options(call.context);
  options.setInput(static_cast<uint8_t*>(call.in()), bytes[static_cast<size_t>(call.staged.member())]);
  options.setOutput(static_cast<uint8_t*>(call.staged.out()), bytes);
  options.setTag(call.tag);
  gloo::allgatherv(options);
}

void broadcast(const Call& call) {
  const size_t bytes = static_cast<size_t>(call.staged.count()) * call.staged.element_bytes();
  gloo::BroadcastOptions options(call.context);
  if (call.is_root() && call.in() != call.staged.out()) options.setInput(static_cast<uint8_t*>(call.in()), bytes);
  options.setOutput(static_cast<uint8_t*>(call.staged.out()), bytes);
  options.setRoot(call.operation().root);
  options.setTag(call.tag);
  gloo::broadcast(options);
}

void barrier(const Call& call) {
  gloo::BarrierOptions options(call.context);
  options.setTag(call.tag);
  gloo::barrier(options);
}

/// The only member of a group has the result already.
void copy_own(const Staged& staged) {
  const Operation& operation = staged.operation();
  const bool reduces =
      operation.kind == Kind::all_reduce || operation.kind == Kind::reduce || operation.kind == Kind::reduce_scatter;
  const int64_t count = staged.counts().empty() ? staged.count() : staged.counts()[0];
  const size_t bytes = static_cast<size_t>(count) * (reduces ? bytes_of(staged.dtype(), 1) : staged.element_bytes());
  if (operation.kind != Kind::barrier && bytes > 0 && staged.in() != staged.out())
    std::memcpy(staged.out(), staged.in(), bytes);
}

}  // namespace

void run_collective(const std::shared_ptr<GlooContext>& context, Staged& staged, uint64_t number) {
  const Call call{context, staged, static_cast<uint32_t>(number)};
  const Kind kind = staged.operation().kind;
  if (staged.size() == 1) return copy_own(staged);
  const bool empty = staged.counts().empty() ? staged.count() == 0 : sum_of(staged.counts()) == 0;
  if (empty && kind != Kind::barrier && kind != Kind::all_to_all) return;
  switch (kind) {
    case Kind::all_reduce:
      return all_reduce(call);
    case Kind::reduce:
      return reduce(call);
    case Kind::reduce_scatter:
      return reduce_scatter(call);
    case Kind::all_gather:
      return all_gather(call);
    case Kind::gather:
      return gather(call);
    case Kind::scatter:
      return scatter(call);
    case Kind::broadcast:
      return broadcast(call);
    case Kind::barrier:
      return barrier(call);
    default:
      return exchange(call, call.in(), staged.counts(), staged.out(), staged.recv_counts(), staged.element_bytes());
  }
}

}  // namespace tessera::comm
