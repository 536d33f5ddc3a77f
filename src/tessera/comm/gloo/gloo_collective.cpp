#include "tessera/comm/gloo/gloo_collective.h"

#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/reduce.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/comm/reduce.h"

namespace tessera::comm {
namespace {

using Counts = std::vector<int64_t>;

/// A collective with the settings that all of Gloo's options need.
struct Call {
  const std::shared_ptr<GlooContext>& context;
  Staged& staged;
  uint32_t tag;

  const Operation& operation() const { return staged.operation(); }
  bool is_root() const { return staged.member() == operation().root; }
  void* in() const { return const_cast<void*>(staged.in()); }
};

/// Calls visit(T{}) with an unsigned integer of that many bytes: Gloo's notion of an element.
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

/// Exchanges members' blocks in pieces: a received piece is reduced while the next one arrives, so little memory
/// suffices. Member j of 3 sends pieces 0, 1, … of blocks j+1 and j+2 to their owners, and receives those of its own
/// block from them; a few rows of pieces are received at a time.
class BlocksOnTheWay {
 public:
  explicit BlocksOnTheWay(const Call& call)
      : call_(call),
        width_(bytes_of(call.staged.dtype(), 1)),
        me_(static_cast<size_t>(call.staged.member())),
        members_(call.staged.counts().size()),
        in_(call.context->createUnboundBuffer(call.in(), static_cast<size_t>(sum_of(call.staged.counts())) * width_)) {}

  void run() {
    const size_t rows = pieces_of(me_);
    for (size_t row = 0; row < std::min(rows, kRows); ++row) receive(row);
    const size_t sends = send_all();
    for (size_t row = 0; row < rows; ++row) {
      reduce(row);
      if (row + kRows < rows) receive(row + kRows);
    }
    for (size_t send = 0; send < sends; ++send) in_->waitSend();
  }

 private:
  using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;
  static constexpr size_t kPiece = size_t{1} << 20;  // bytes
  static constexpr size_t kRows = 4;

  size_t bytes_of_block(size_t member) const { return static_cast<size_t>(call_.staged.counts()[member]) * width_; }
  size_t pieces_of(size_t member) const { return (bytes_of_block(member) + kPiece - 1) / kPiece; }
  size_t bytes_of_piece(size_t member, size_t piece) const {
    return std::min(kPiece, bytes_of_block(member) - piece * kPiece);
  }
  size_t offset_of(size_t member) const {
    size_t offset = 0;
    for (size_t before = 0; before < member; ++before) offset += bytes_of_block(before);
    return offset;
  }
  /// Neither messages nor Gloo's own algorithms use these.
  uint64_t slot_of(size_t piece) const { return uint64_t{0x43} << 56 | uint64_t{call_.tag} << 24 | piece; }

  size_t send_all() {
    size_t sends = 0;
    for (size_t step = 1; step < members_; ++step) {
      const size_t to = (me_ + step) % members_;
      for (size_t piece = 0; piece < pieces_of(to); ++piece, ++sends)
        in_->send(static_cast<int>(to), slot_of(piece), offset_of(to) + piece * kPiece, bytes_of_piece(to, piece));
    }
    return sends;
  }

  void receive(size_t row) {
    const size_t bytes = bytes_of_piece(me_, row);
    Row& into = rows_[row % kRows];
    if (!into.memory) into.memory = std::make_unique_for_overwrite<std::byte[]>(bytes * (members_ - 1));
    into.buffers.clear();
    for (size_t step = 1; step < members_; ++step) {
      into.buffers.push_back(call_.context->createUnboundBuffer(into.memory.get() + (step - 1) * bytes, bytes));
      into.buffers.back()->recv(static_cast<int>((me_ + step) % members_), slot_of(row), 0, bytes);
    }
  }

  void reduce(size_t row) {
    const size_t bytes = bytes_of_piece(me_, row);
    const Row& from = rows_[row % kRows];
    std::vector<const void*> inputs(members_);
    inputs[me_] = static_cast<const std::byte*>(call_.in()) + offset_of(me_) + row * kPiece;
    for (size_t step = 1; step < members_; ++step) {
      from.buffers[step - 1]->waitRecv();
      inputs[(me_ + step) % members_] = from.memory.get() + (step - 1) * bytes;
    }
    void* out = static_cast<std::byte*>(call_.staged.out()) + row * kPiece;
    reduce_elements(call_.staged.dtype(), call_.staged.reduction(), inputs, {&out, 1},
                    static_cast<int64_t>(bytes / width_));
  }

  const Call& call_;
  const size_t width_, me_, members_;
  Buffer in_;
  struct Row {
    std::unique_ptr<std::byte[]> memory;
    std::vector<Buffer> buffers;
  };
  std::array<Row, kRows> rows_;
};

void reduce_scatter(const Call& call) {
  BlocksOnTheWay(call).run();
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

/// The only member of a group already has the result.
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
