#include "tessera/runtime/collective.h"

#include "tessera/base/error.h"
#include "tessera/mesh/group.h"

namespace tessera::runtime {
namespace {

// Extents of a local shape on some rank of the mesh.
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
  const SymbolLookup& symbols_;
};

int64_t product_of(const Dims& dims, size_t begin, size_t end) {
  int64_t result = 1;
  for (size_t d = begin; d < end; ++d) result *= dims[d];
  return result;
}

class Collective : public kernels::Kernel {
 public:
  Collective(const Node& node, RankState& rank, const SymbolLookup& symbols, StepInfo& info)
      : rank_(rank), label_(node.get_string("value", node.label())) {
    const Mesh& mesh = rank.program().mesh;
    Extents extents(mesh, symbols);
    const auto* axes = node.get<std::vector<std::string>>("axes");
    if (!axes) fail("communication", "{} names no axes; give it the attribute axes", node.label());
    axes_ = *axes;
    std::vector<AxisRef> group;
    for (const std::string& axis : axes_) group.push_back(parse_axis(axis, mesh));
    std::vector<int> members = group_of(rank.rank(), group, mesh);
    info = {label_, node.op_type, true, axes_, members.front()};
    const Value& in = *node.input(0);
    const Value& out = *node.output(0);
    Dims in_dims = extents.at(in.shape(), rank.rank()), out_dims = extents.at(out.shape(), rank.rank());
    operation_.dtype = in.dtype();
    operation_.label = label_;
    operation_.reduction = reduction_of(node);
    auto counts_along = [&](const Shape& shape, int64_t dim) {
      if (dim < 0 || dim >= static_cast<int64_t>(shape.size()))
        fail("communication", "{}: dimension {} is out of range", node.label(), dim);
      Expr extent = member_extent(node, spmd::kExtentAttribute, shape[dim]);
      std::vector<int64_t> counts;
      for (int member : members) counts.push_back(extents.at(extent, member));
      return counts;
    };
    if (node.op_type == "AllReduce") {
      operation_.kind = comm::Kind::all_reduce;
      operation_.count = count_of(in_dims);
    } else if (node.op_type == "AllGather" || node.op_type == "ReduceScatter") {
      bool gathers = node.op_type == "AllGather";
      operation_.kind = gathers ? comm::Kind::all_gather : comm::Kind::reduce_scatter;
      int64_t dim = node.get_int("dim", -1);
      counts_ = counts_along(gathers ? in.shape() : out.shape(), dim);
      operation_.outer = product_of(in_dims, 0, dim);
      operation_.inner = product_of(in_dims, dim + 1, in_dims.size());
    } else if (node.op_type == "AllToAll") {
      prepare_exchange(node, extents, members, in_dims, out_dims);
    } else {
      fail("communication", "{}: no such communication; there are AllReduce, AllGather, ReduceScatter and AllToAll",
           node.label());
    }
    operation_.counts = counts_;
    operation_.recv_counts = recv_counts_;
  }

  size_t scratch_bytes() const override { return scratch_; }

  void run(const kernels::KernelArgs& args) override {
    if (!communicator_) communicator_ = &rank_.communicator(axes_);
    comm::Operation operation = operation_;
    operation.in = args.inputs[0];
    operation.out = args.outputs[0];
    if (operation.kind != comm::Kind::all_to_all) {
      communicator_->run(operation);
      return;
    }
    auto* send = static_cast<std::byte*>(args.scratch);
    auto* receive = send + send_bytes_;
    size_t at = 0;
    for (const Box& block : send_blocks_) {
      copy_from_whole(send + at, args.inputs[0], block, element_);
      at += static_cast<size_t>(block.count()) * element_;
    }
    operation.in = send;
    operation.out = receive;
    communicator_->run(operation);
    at = 0;
    for (const Box& block : recv_blocks_) {
      copy_to_whole(args.outputs[0], receive + at, block, element_);
      at += static_cast<size_t>(block.count()) * element_;
    }
  }

 private:
  static Reduction reduction_of(const Node& node) {
    std::string name = node.get_string("reduction", "sum");
    for (Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min, Reduction::mean})
      if (name == name_of(reduction)) return reduction;
    fail("communication", "{}: there is no reduction '{}'; there are sum, max, min and mean", node.label(), name);
  }

  // A member's extent, as the node states it where its operands' shapes are bound to one rank.
  static Expr member_extent(const Node& node, std::string_view attribute, const Expr& of_shape) {
    const auto* text = node.get<std::string>(attribute);
    if (!text) return of_shape;
    auto extent = Expr::parse(*text);
    if (!extent) fail("communication", "{}: its {} '{}' is no expression", node.label(), attribute, *text);
    return *extent;
  }

  // Every member sends each other member's block of split_dim; blocks arrive one after the other along concat_dim.
  void prepare_exchange(const Node& node, const Extents& extents, const std::vector<int>& members, const Dims& in_dims,
                        const Dims& out_dims) {
    operation_.kind = comm::Kind::all_to_all;
    int64_t split = node.get_int("split_dim", -1), concat = node.get_int("concat_dim", -1);
    auto rank_count = static_cast<int64_t>(in_dims.size());
    if (split < 0 || concat < 0 || split >= rank_count || concat >= rank_count)
      fail("communication", "{}: split_dim and concat_dim must name dimensions of the operand", node.label());
    element_ = static_cast<size_t>(bits_of(operation_.dtype)) / 8;
    Expr split_extent = member_extent(node, spmd::kSplitExtentAttribute, node.output(0)->shape()[split]);
    Expr concat_extent = member_extent(node, spmd::kConcatExtentAttribute, node.input(0)->shape()[concat]);
    int64_t from = 0, to = 0;
    for (int member : members) {
      Box out{in_dims, Dims(in_dims.size(), 0), in_dims};
      out.offsets[split] = from;
      out.extents[split] = extents.at(split_extent, member);
      from += out.extents[split];
      counts_.push_back(out.count());
      send_blocks_.push_back(std::move(out));
      Box in{out_dims, Dims(out_dims.size(), 0), out_dims};
      in.offsets[concat] = to;
      in.extents[concat] = extents.at(concat_extent, member);
      to += in.extents[concat];
      recv_counts_.push_back(in.count());
      recv_blocks_.push_back(std::move(in));
    }
    send_bytes_ = (static_cast<size_t>(count_of(in_dims)) * element_ + 63) / 64 * 64;
    scratch_ = send_bytes_ + static_cast<size_t>(count_of(out_dims)) * element_;
  }

  RankState& rank_;
  std::string label_;
  std::vector<std::string> axes_;
  comm::Communicator* communicator_ = nullptr;
  comm::Operation operation_;
  std::vector<int64_t> counts_, recv_counts_;
  std::vector<Box> send_blocks_, recv_blocks_;
  size_t element_ = 1, send_bytes_ = 0, scratch_ = 0;
};

}  // namespace

std::unique_ptr<kernels::Kernel> prepare_collective(const Node& node, RankState& rank, const SymbolLookup& symbols,
                                                    StepInfo& info) {
  return std::make_unique<Collective>(node, rank, symbols, info);
}

}  // namespace tessera::runtime
