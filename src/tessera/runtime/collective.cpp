#include "tessera/runtime/collective.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/bind/traits.h"
#include "tessera/dialect/schema.h"
#include "tessera/mesh/group.h"

namespace tessera::runtime {
namespace {

// The extents of a local shape on some rank of the mesh.
class Extents {
 public:
  Extents(const Mesh& mesh, const SymbolLookup& symbols) : mesh_(mesh), symbols_(symbols) {}

  int64_t at(const Expr& extent, int64_t rank) const {
    auto coordinates = mesh_.coordinates(rank);
    return extent.evaluate([&](std::string_view name) -> std::optional<int64_t> {
      if (!name.starts_with('@')) return symbols_(name);
      auto axis = mesh_.find(name.substr(1));
      return axis ? std::optional(coordinates[*axis]) : std::nullopt;
    });
  }
  Dims at(const Shape& shape, int64_t rank) const {
    Dims dims;
    for (const Expr& extent : shape) dims.push_back(at(extent, rank));
    return dims;
  }

 private:
  const Mesh& mesh_;
  SymbolLookup symbols_;
};

int64_t product_of(const Dims& dims, size_t begin, size_t end) {
  int64_t result = 1;
  for (size_t d = begin; d < end; ++d) result *= dims[d];
  return result;
}

class Collective : public NodeCommunication {
 public:
  Collective(const Node& node, RankState& rank, const SymbolLookup& symbols, bind::StepInfo& info)
      : rank_(rank), extents_(rank.mesh(), symbols) {
    const Mesh& mesh = rank.mesh();
    const spmd::CollectiveAttributes collective = spmd::read_collective(node, mesh);
    label_ = collective.value.empty() ? node.label() : collective.value;
    axes_ = collective.axes;
    members_ = group_of(rank.rank(), parse_axes(axes_, mesh), mesh);
    info = {label_, node.op_type, true, axes_, members_.front(), static_cast<int>(members_.size())};
    operation_.kind = collective.kind;
    operation_.label = label_;
    operation_.reduction = collective.reduction;
    operation_.root = static_cast<int>(collective.root);
    info.is_root = member() == operation_.root;
    prepare(node, collective);
    if (operation_.from >= 0) info.from = members_[static_cast<size_t>(operation_.from)];
    if (operation_.to >= 0) info.to = members_[static_cast<size_t>(operation_.to)];
    operation_.counts = std::move(counts_);
    operation_.recv_counts = std::move(recv_counts_);
  }

  const comm::Operation& operation() const override { return operation_; }
  int member() const override {
    return static_cast<int>(std::find(members_.begin(), members_.end(), rank_.rank()) - members_.begin());
  }
  size_t scratch_bytes() const override { return scratch_; }

  void start(device::Queue& queue, const kernels::KernelArgs& args) override {
    if (!communicator_) communicator_ = &rank_.communicators().of(axes_);
    for (const Block& block : sent_)
      queue.copy_box(static_cast<std::byte*>(args.scratch) + block.skip, block.dense, args.inputs[0], block.part.box,
                     block.part.unit);
    queue.call([this](const kernels::KernelArgs& given) { begin(given); }, args);
  }

  void advance() override {
    if (!done_) done_ = communicator_->test(ticket_);
  }

  void wait(device::Queue& queue, const kernels::KernelArgs& args) override {
    queue.call([this](const kernels::KernelArgs&) { communicator_->wait(ticket_); }, args);
    for (const Block& block : received_)
      queue.copy_box(args.outputs[0], block.part.box, static_cast<std::byte*>(args.scratch) + block.skip, block.dense,
                     block.part.unit);
    if (clears_) queue.clear(args.outputs[0], clears_);
  }

 private:
  /// A member's part of an all-to-all's operand or result, and its dense copy in scratch memory, which is sent.
  struct Block {
    CopiedBox part;
    Box dense;
    size_t skip = 0;  ///< bytes before the dense one
  };

  void begin(const kernels::KernelArgs& args) {
    rank_.communicators().count();
    comm::Operation operation = operation_;
    if (operand_ >= 0) operation.in = args.inputs[static_cast<size_t>(operand_)];
    if (!args.outputs.empty()) operation.out = args.outputs[0];
    if (operation.kind == comm::Kind::all_to_all) {
      operation.in = args.scratch;
      operation.out = static_cast<std::byte*>(args.scratch) + send_bytes_;
    }
    operation.stream = args.stream;
    ticket_ = communicator_->start(operation);
    done_ = false;
  }

  void prepare(const Node& node, const spmd::CollectiveAttributes& collective) {
    using comm::Kind;
    if (operation_.kind == Kind::barrier) return;
    if (operation_.kind == Kind::recv) {
      operation_.dtype = node.output(0)->dtype();
      operation_.count = count_of(extents_.at(node.output(0)->shape(), rank_.rank()));
      operation_.from = peer(node);
      return;
    }
    // A member that gives nothing (it is not the root, or has no target) may have no operand.
    if (node.input(0)) operand_ = 0;
    const Value& in = node.input(0) ? *node.input(0) : *node.output(0);
    Dims in_dims = extents_.at(in.shape(), rank_.rank());
    operation_.dtype = in.dtype();
    operation_.count = count_of(in_dims);
    if (operation_.kind == Kind::send) {
      operation_.to = peer(node);
      return;
    }
    const Value& out = *node.output(0);
    Dims out_dims = extents_.at(out.shape(), rank_.rank());
    const CollectiveTraits& traits = traits_of(operation_.kind);
    switch (traits.block) {
      case BlockSide::operand:
      case BlockSide::result:
        prepare_blocks(spmd::member_extents(collective, node).block, static_cast<size_t>(collective.dim), in_dims);
        break;
      case BlockSide::both:
        prepare_exchange(collective, spmd::member_extents(collective, node), in_dims, out_dims);
        break;
      case BlockSide::none:
        break;
    }
    if (operation_.kind == Kind::permute) prepare_permute(collective.targets);
    // A result that only the root receives is zeros on other members.
    if (traits.root == RootRole::gets && member() != operation_.root)
      clears_ = bytes_of(out.dtype(), count_of(out_dims));
  }

  // The member index of the rank that an operand names; -1 is nobody.
  int peer(const Node& node) const {
    const int64_t rank = extents_.at(dialect::peer_of(node), rank_.rank());
    if (rank == -1) return -1;
    auto found = std::find(members_.begin(), members_.end(), rank);
    if (found == members_.end())
      fail("communication", "{}: its peer is rank {}, which is not in the group over {} of rank {}: {}", node.label(),
           rank, fmt::join(axes_, ","), rank_.rank(), fmt::join(members_, ", "));
    return static_cast<int>(found - members_.begin());
  }

  // Blocks of `extent` on each member, along one dimension of the operand's `dims`.
  void prepare_blocks(const Expr& extent, size_t dim, const Dims& dims) {
    counts_ = on_members(extent);
    operation_.outer = product_of(dims, 0, dim);
    operation_.inner = product_of(dims, dim + 1, dims.size());
  }

  std::vector<int64_t> on_members(const Expr& extent) {
    return rank_.member_extents().of(extent, axes_, members_, [&](int member) { return extents_.at(extent, member); });
  }

  void prepare_permute(const std::vector<int64_t>& targets) {
    operation_.to = static_cast<int>(targets[static_cast<size_t>(member())]);
    for (size_t from = 0; from < targets.size(); ++from)
      if (targets[from] == member()) operation_.from = static_cast<int>(from);
  }

  // Every member sends each other member's block of split_dim; blocks arrive one after the other along concat_dim.
  void prepare_exchange(const spmd::CollectiveAttributes& collective, const spmd::MemberExtents& blocks,
                        const Dims& in_dims, const Dims& out_dims) {
    const auto split = static_cast<size_t>(collective.split_dim), concat = static_cast<size_t>(collective.concat_dim);
    send_bytes_ = (bytes_of(operation_.dtype, count_of(in_dims)) + 63) / 64 * 64;
    scratch_ = send_bytes_ + bytes_of(operation_.dtype, count_of(out_dims));
    size_t sent = 0, received = send_bytes_;  // bytes
    int64_t from = 0, to = 0;
    const std::vector<int64_t> splits = on_members(blocks.split), concats = on_members(blocks.concat);
    const auto add = [&](const Dims& dims, size_t dim, int64_t extent, int64_t& at, size_t& skip) {
      Box box{dims, Dims(dims.size(), 0), dims};
      box.offsets[dim] = at;
      box.extents[dim] = extent;
      at += box.extents[dim];
      Block block{{std::move(box), operation_.dtype}, {}, skip};
      const Dims& extents = block.part.box.extents;
      block.dense = {extents, Dims(extents.size(), 0), extents};
      skip += static_cast<size_t>(block.part.box.count()) * block.part.unit;
      return block;
    };
    for (size_t m = 0; m < members_.size(); ++m) {
      sent_.push_back(add(in_dims, split, splits[m], from, sent));
      counts_.push_back(sent_.back().part.box.count());
      received_.push_back(add(out_dims, concat, concats[m], to, received));
      recv_counts_.push_back(received_.back().part.box.count());
    }
    if (bits_of(operation_.dtype) % 8 != 0) operation_.dtype = DType::uint8;  // blocks are counted in bytes then
  }

  RankState& rank_;
  std::string label_;
  Extents extents_;
  std::vector<int> members_;  ///< ranks of the group
  int operand_ = -1;          ///< that is sent
  size_t clears_ = 0;         ///< bytes of a result that this member does not receive
  std::vector<std::string> axes_;
  comm::Communicator* communicator_ = nullptr;
  comm::Operation operation_;
  comm::Ticket ticket_ = 0;
  bool done_ = false;  ///< as far as the communicator has said
  std::vector<int64_t> counts_, recv_counts_;
  std::vector<Block> sent_, received_;
  size_t send_bytes_ = 0, scratch_ = 0;
};

}  // namespace

std::unique_ptr<NodeCommunication> prepare_communication(const Node& node, RankState& rank, const SymbolLookup& symbols,
                                                         bind::StepInfo& info) {
  return std::make_unique<Collective>(node, rank, symbols, info);
}

}  // namespace tessera::runtime
