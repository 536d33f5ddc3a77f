#include "tessera/runtime/bucket.h"

#include <fmt/format.h>

#include "tessera/bind/traits.h"
#include "tessera/comm/operation.h"
#include "tessera/runtime/collective.h"

namespace tessera::runtime {
namespace {

class Bucket : public bind::Communication {
 public:
  Bucket(const std::vector<const Node*>& nodes, RankState& rank, const SymbolLookup& symbols, bind::StepInfo& info)
      : rank_(rank) {
    for (const Node* node : nodes) {
      bind::StepInfo own;
      parts_.push_back(prepare_communication(*node, rank, symbols, own));
      if (node == nodes.front()) info = std::move(own);
    }
    info.name = label_ = fmt::format("{} and {} more", info.name, nodes.size() - 1);
    axes_ = info.axes;
    const comm::Operation& first = parts_.front()->operation();
    joined_.kind = first.kind;
    joined_.dtype = first.dtype;
    joined_.reduction = first.reduction;
    joined_.label = label_;
    element_ = bind::element_bytes(first.dtype);
    switch (traits_of(first.kind).block) {
      case BlockSide::operand:
        result_begin_ = aligned(place_own(given_));
        scratch_ = result_begin_ + place_blocks(taken_, result_begin_);
        break;
      case BlockSide::result:
        result_begin_ = aligned(place_blocks(given_, 0));
        scratch_ = result_begin_ + place_own(taken_);
        for (Piece& piece : taken_) piece.skip += result_begin_;
        break;
      default:
        scratch_ = place_own(given_);
        taken_ = given_;
        joined_.count = static_cast<int64_t>(scratch_ / element_);
    }
    joined_.counts = counts_;
  }

  size_t scratch_bytes() const override { return scratch_; }

  void start(device::Queue& queue, const kernels::KernelArgs& args) override {
    if (!communicator_) {
      communicator_ = &rank_.communicator(axes_);
      as_one_ = communicator_->reduces_by_element(joined_);
    }
    if (!as_one_) {
      for (size_t i = 0; i < parts_.size(); ++i) parts_[i]->start(queue, args_of(args, i));
      return;
    }
    for (const Piece& piece : given_)
      queue.copy_box(static_cast<std::byte*>(args.scratch) + piece.skip, piece.dense, args.inputs[piece.part],
                     piece.box, element_);
    queue.run([this](const kernels::KernelArgs& given) { begin(given); }, args);
  }

  void advance() override {
    if (!as_one_)
      for (const auto& part : parts_) part->advance();
    else if (!done_)
      done_ = communicator_->test(ticket_);
  }

  void wait(device::Queue& queue, const kernels::KernelArgs& args) override {
    if (!as_one_) {
      for (size_t i = 0; i < parts_.size(); ++i) parts_[i]->wait(queue, args_of(args, i));
      return;
    }
    queue.run([this](const kernels::KernelArgs&) { communicator_->wait(ticket_); }, args);
    for (const Piece& piece : taken_)
      queue.copy_box(args.outputs[piece.part], piece.box, static_cast<std::byte*>(args.scratch) + piece.skip,
                     piece.dense, element_);
  }

 private:
  /// A member's block of an operand or result, and its place in scratch memory.
  struct Piece {
    size_t part = 0;
    Box box;
    Box dense;
    size_t skip = 0;  ///< bytes
  };

  static size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

  static kernels::KernelArgs args_of(const kernels::KernelArgs& args, size_t part) {
    return {args.inputs.subspan(part, 1), args.outputs.subspan(part, 1), nullptr};
  }

  void add(std::vector<Piece>& to, size_t part, Box box, size_t& at) const {
    Piece piece{part, std::move(box), {}, at};
    piece.dense = {piece.box.extents, Dims(piece.box.extents.size(), 0), piece.box.extents};
    at += static_cast<size_t>(piece.box.count()) * element_;
    to.push_back(std::move(piece));
  }

  // This member's operands or results, one after the other. Returns their bytes.
  size_t place_own(std::vector<Piece>& into) const {
    size_t at = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const comm::Operation& part = parts_[i]->operation();
      int64_t count = part.count;
      if (!part.counts.empty()) count = part.outer * part.counts[static_cast<size_t>(me())] * part.inner;
      add(into, i, Box{{count}, {0}, {count}}, at);
    }
    return at;
  }

  // All members' blocks of whole tensors, member by member. Returns their bytes.
  size_t place_blocks(std::vector<Piece>& into, size_t begin) {
    const size_t members = parts_.front()->operation().counts.size();
    std::vector<int64_t> before(parts_.size(), 0);
    size_t at = begin;
    for (size_t member = 0; member < members; ++member) {
      const size_t first = at;
      for (size_t i = 0; i < parts_.size(); ++i) {
        const comm::Operation& part = parts_[i]->operation();
        const int64_t block = part.counts[member];
        add(into, i,
            Box{{part.outer, comm::sum_of(part.counts), part.inner},
                {0, before[i], 0},
                {part.outer, block, part.inner}},
            at);
        before[i] += block;
      }
      counts_.push_back(static_cast<int64_t>((at - first) / element_));
    }
    return at - begin;
  }

  void begin(const kernels::KernelArgs& args) {
    rank_.count_communication();
    comm::Operation operation = joined_;
    operation.in = args.scratch;
    operation.out = static_cast<std::byte*>(args.scratch) + result_begin_;
    operation.stream = args.stream;
    ticket_ = communicator_->start(operation);
    done_ = false;
  }

  int me() const { return parts_.front()->member(); }

  RankState& rank_;
  std::vector<std::unique_ptr<NodeCommunication>> parts_;
  std::string label_;
  std::vector<std::string> axes_;
  std::vector<Piece> given_, taken_;
  std::vector<int64_t> counts_;  ///< elements of each member's blocks
  size_t element_ = 1, result_begin_ = 0, scratch_ = 0;
  comm::Operation joined_;
  comm::Communicator* communicator_ = nullptr;
  bool as_one_ = true;
  comm::Ticket ticket_ = 0;
  bool done_ = false;  ///< as far as the communicator has said
};

}  // namespace

std::unique_ptr<bind::Communication> prepare_bucket(const std::vector<const Node*>& nodes, RankState& rank,
                                                    const SymbolLookup& symbols, bind::StepInfo& info) {
  return std::make_unique<Bucket>(nodes, rank, symbols, info);
}

}  // namespace tessera::runtime
