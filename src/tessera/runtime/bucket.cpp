#include "tessera/runtime/bucket.h"

#include <fmt/format.h>

#include "tessera/base/error.h"
#include "tessera/bind/traits.h"
#include "tessera/comm/operation.h"
#include "tessera/runtime/collective.h"

namespace tessera::runtime {
namespace {

using Parts = std::vector<std::unique_ptr<NodeCommunication>>;

constexpr size_t kAlignment = 64;

size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Elements of the tensor that members' blocks make up.
int64_t whole_count(const comm::Operation& part) {
  return part.outer * comm::sum_of(part.counts) * part.inner;
}

/// Whether this member has the whole tensor, and not its block only.
bool has_whole(const NodeCommunication& part) {
  return traits_of(part.operation().kind).root == RootRole::none || part.member() == part.operation().root;
}

/// Parts [first, end) of a bucket as one operation.
class Joined {
 public:
  Joined(const Parts& parts, size_t first, size_t end, std::string_view label)
      : parts_(parts), first_(first), end_(end) {
    const comm::Operation& like = parts[first]->operation();
    operation_.kind = like.kind;
    operation_.dtype = like.dtype;
    operation_.reduction = like.reduction;
    operation_.root = like.root;
    operation_.label = label;
    element_ = bind::element_bytes(like.dtype);
    switch (traits_of(like.kind).block) {
      case BlockSide::operand:
        result_begin_ = aligned(place_own(given_, 0));
        bytes_ = place_blocks(taken_, result_begin_);
        break;
      case BlockSide::result:
        result_begin_ = aligned(place_blocks(given_, 0));
        bytes_ = place_own(taken_, result_begin_);
        break;
      default:
        bytes_ = place_own(given_, 0);
        taken_ = given_;
        operation_.count = static_cast<int64_t>(bytes_ / element_);
    }
    operation_.counts = counts_;
  }
  Joined(const Joined&) = delete;
  Joined& operator=(const Joined&) = delete;

  const comm::Operation& operation() const { return operation_; }
  size_t bytes() const { return aligned(bytes_); }
  size_t first() const { return first_; }
  size_t end() const { return end_; }

  /// What this member gives, if it gives anything.
  void pack(device::Queue& queue, const kernels::KernelArgs& args, std::byte* scratch) const {
    for (const Piece& piece : given_)
      queue.copy_box(scratch + piece.skip, piece.dense, args.inputs[piece.part], piece.box, element_);
  }
  /// What it gets. A result that only the root gets is zeros on other members.
  void unpack(device::Queue& queue, const kernels::KernelArgs& args, const std::byte* scratch) const {
    for (const Piece& piece : taken_)
      queue.copy_box(args.outputs[piece.part], piece.box, scratch + piece.skip, piece.dense, element_);
    if (traits_of(operation_.kind).root != RootRole::gets || has_whole(*parts_[first_])) return;
    for (size_t i = first_; i < end_; ++i)
      queue.clear(args.outputs[i], static_cast<size_t>(whole_count(parts_[i]->operation())) * element_);
  }
  comm::Operation with_buffers(std::byte* scratch, void* stream) const {
    comm::Operation operation = operation_;
    operation.in = scratch;
    operation.out = scratch + result_begin_;
    operation.stream = stream;
    return operation;
  }

 private:
  /// A member's block of an operand or result, and its place in scratch memory.
  struct Piece {
    size_t part = 0;
    Box box;
    Box dense;
    size_t skip = 0;  ///< bytes
  };

  void add(std::vector<Piece>& to, size_t part, Box box, size_t& at) const {
    Piece piece{part, std::move(box), {}, at};
    piece.dense = {piece.box.extents, Dims(piece.box.extents.size(), 0), piece.box.extents};
    at += static_cast<size_t>(piece.box.count()) * element_;
    to.push_back(std::move(piece));
  }

  // This member's operands or results, one after the other. Returns their end.
  size_t place_own(std::vector<Piece>& into, size_t at) const {
    for (size_t i = first_; i < end_; ++i) {
      const comm::Operation& part = parts_[i]->operation();
      const bool in_blocks = !part.counts.empty();
      const int64_t count =
          in_blocks ? part.outer * part.counts[static_cast<size_t>(parts_[i]->member())] * part.inner : part.count;
      add(into, i, Box{{count}, {0}, {count}}, at);
    }
    return at;
  }

  // All members' blocks of whole tensors, member by member, if this member has the whole tensors. Returns their end.
  size_t place_blocks(std::vector<Piece>& into, size_t at) {
    const size_t members = parts_[first_]->operation().counts.size();
    std::vector<int64_t> before(end_ - first_, 0), wholes;
    for (size_t i = first_; i < end_; ++i) wholes.push_back(comm::sum_of(parts_[i]->operation().counts));
    for (size_t member = 0; member < members; ++member) {
      int64_t& count = counts_.emplace_back(0);
      for (size_t i = first_; i < end_; ++i) {
        const comm::Operation& part = parts_[i]->operation();
        const int64_t whole = wholes[i - first_], block = part.counts[member];
        count += part.outer * block * part.inner;
        if (has_whole(*parts_[i]))
          add(into, i,
              Box{{part.outer, whole, part.inner}, {0, before[i - first_], 0}, {part.outer, block, part.inner}}, at);
        before[i - first_] += block;
      }
    }
    return at;
  }

  const Parts& parts_;
  size_t first_, end_;
  std::vector<Piece> given_, taken_;
  std::vector<int64_t> counts_;  ///< elements of each member's blocks
  size_t element_ = 1, result_begin_ = 0, bytes_ = 0;
  comm::Operation operation_;
};

/// Joined::bytes() of all parts, without a list of all members' pieces.
size_t joined_bytes(const Parts& parts) {
  const comm::Operation& like = parts.front()->operation();
  int64_t own = 0, whole = 0;  // elements: of this member's blocks, and of all members' blocks if it has them
  for (const auto& each : parts) {
    const comm::Operation& part = each->operation();
    const int64_t rows = part.counts.empty() ? 0 : part.counts[static_cast<size_t>(each->member())];
    own += part.counts.empty() ? part.count : part.outer * rows * part.inner;
    if (has_whole(*each)) whole += whole_count(part);
  }
  const size_t element = bind::element_bytes(like.dtype);
  const size_t own_bytes = static_cast<size_t>(own) * element, whole_bytes = static_cast<size_t>(whole) * element;
  switch (traits_of(like.kind).block) {
    case BlockSide::operand:
      return aligned(aligned(own_bytes) + whole_bytes);
    case BlockSide::result:
      return aligned(aligned(whole_bytes) + own_bytes);
    default:
      return aligned(own_bytes);
  }
}

/// Whether a member's block is several pieces of the whole. Elements of less than a byte are never packed.
bool has_strided_blocks(const comm::Operation& operation) {
  const BlockSide block = traits_of(operation.kind).block;
  const bool has_blocks = block == BlockSide::operand || block == BlockSide::result;
  return has_blocks && operation.outer != 1 && bind::element_bytes(operation.dtype) > 0;
}

class Bucket : public bind::Communication {
 public:
  /// `info`: of the first part.
  Bucket(Parts parts, RankState& rank, bind::StepInfo& info)
      : rank_(rank), parts_(std::move(parts)), axes_(info.axes), packs_alone_(!rank.device().uses_host_memory()) {
    if (parts_.size() > 1) info.name = fmt::format("{} and {} more", info.name, parts_.size() - 1);
    label_ = info.name;
    // Room to align each operation's memory, and the results in it, however the bucket is divided.
    scratch_ = joined_bytes(parts_) + 2 * kAlignment * parts_.size();
  }

  size_t scratch_bytes() const override { return scratch_; }

  void start(device::Queue& queue, const kernels::KernelArgs& args) override {
    if (!communicator_) {
      communicator_ = &rank_.communicators().of(axes_);
      divide();
    }
    for (Run& run : runs_) {
      if (!run.joined) {
        parts_[run.part]->start(queue, args_of(args, run.part));
        continue;
      }
      run.joined->pack(queue, args, static_cast<std::byte*>(args.scratch) + run.skip);
      queue.call([this, &run](const kernels::KernelArgs& given) { begin(run, given); }, args);
    }
  }

  void advance() override {
    for (Run& run : runs_) {
      if (!run.joined)
        parts_[run.part]->advance();
      else if (!run.done)
        run.done = communicator_->test(run.ticket);
    }
  }

  void wait(device::Queue& queue, const kernels::KernelArgs& args) override {
    for (Run& run : runs_) {
      if (!run.joined) {
        parts_[run.part]->wait(queue, args_of(args, run.part));
        continue;
      }
      queue.call([this, &run](const kernels::KernelArgs&) { communicator_->wait(run.ticket); }, args);
      run.joined->unpack(queue, args, static_cast<std::byte*>(args.scratch) + run.skip);
    }
  }

 private:
  /// What starts as one operation: neighbours of the bucket, or one part by itself.
  struct Run {
    std::unique_ptr<Joined> joined;  ///< null: `part` alone
    size_t part = 0;
    size_t skip = 0;  ///< bytes of scratch memory before its own
    comm::Ticket ticket = 0;
    bool done = false;  ///< as far as the communicator has said
  };

  // Makes as few runs as possible that the communicator reduces element by element. All members make the same ones.
  void divide() {
    size_t skip = 0;
    for (size_t first = 0; first < parts_.size();) {
      size_t end = parts_.size();
      auto joined = std::make_unique<Joined>(parts_, first, end, label_);
      while (end > first + 1 && !communicator_->reduces_by_element(joined->operation()))
        joined = std::make_unique<Joined>(parts_, first, --end, label_);
      Run& run = runs_.emplace_back();
      run.part = first;
      run.skip = skip;
      if (end > first + 1 || (packs_alone_ && has_strided_blocks(parts_[first]->operation()))) {
        skip += joined->bytes();
        run.joined = std::move(joined);
      }
      first = end;
    }
    check(skip <= scratch_, "a bucket has room for each of its operations");
  }

  void begin(Run& run, const kernels::KernelArgs& args) {
    rank_.communicators().count();
    run.ticket =
        communicator_->start(run.joined->with_buffers(static_cast<std::byte*>(args.scratch) + run.skip, args.stream));
    run.done = false;
  }

  static kernels::KernelArgs args_of(const kernels::KernelArgs& args, size_t part) {
    return {args.inputs.subspan(part, 1), args.outputs.subspan(part, 1), nullptr};
  }

  RankState& rank_;
  Parts parts_;
  std::string label_;
  std::vector<std::string> axes_;
  bool packs_alone_;  // a part that starts by itself, if its blocks are strided
  size_t scratch_ = 0;
  comm::Communicator* communicator_ = nullptr;
  std::vector<Run> runs_;
};

}  // namespace

std::unique_ptr<bind::Communication> prepare_collectives(const std::vector<const Node*>& nodes, RankState& rank,
                                                         const SymbolLookup& symbols, bind::StepInfo& info) {
  Parts parts;
  for (const Node* node : nodes) {
    bind::StepInfo own;
    parts.push_back(prepare_communication(*node, rank, symbols, own));
    if (node == nodes.front()) info = std::move(own);
  }
  const bool is_alone =
      parts.size() == 1 && (rank.device().uses_host_memory() || !has_strided_blocks(parts.front()->operation()));
  if (is_alone) return std::move(parts.front());
  return std::make_unique<Bucket>(std::move(parts), rank, info);
}

}  // namespace tessera::runtime
