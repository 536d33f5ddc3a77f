#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "tessera/base/counted.h"
#include "tessera/dialect/engine.h"
#include "tessera/dialect/group.h"
#include "tessera/mesh/group.h"
#include "tessera/rewrite/edit.h"
#include "tessera/spmd/program.h"

// TensorRT's DistCollective, in ONNX's own domain (docs.nvidia.com, TensorRT operators, DistCollective; attributes in
// the spelling of NVIDIA's Polygraphy): collective_operation, reduce_op, root, nb_rank, groups, group_size. Blocks are
// equal and along dimension 0.
namespace tessera::dialect {
namespace {

using spmd::AttributeKind;

constexpr std::string_view kName = "TensorRT";
constexpr std::string_view kOp = "DistCollective";

constexpr spmd::AttributeSchema kAttributes[] = {{"collective_operation", AttributeKind::text, true},
                                                 {"reduce_op", AttributeKind::text, false},
                                                 {"root", AttributeKind::integer, false},
                                                 {"nb_rank", AttributeKind::integer, false},
                                                 {"groups", AttributeKind::integers, false},
                                                 {"group_size", AttributeKind::integer, false}};

constexpr Collective kOperations[] = {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                      Collective::all_to_all, Collective::broadcast,  Collective::reduce,
                                      Collective::gather,     Collective::scatter};

struct ReduceOp {
  Reduction ours;
  std::string_view theirs;
};
constexpr ReduceOp kReduceOps[] = {
    {Reduction::sum, "sum"}, {Reduction::max, "max"}, {Reduction::min, "min"}, {Reduction::mean, "avg"}};

std::string lower_case(std::string text) {
  for (char& letter : text) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return text;
}

bool owns(const Node& node) {
  return node.is(kOp);
}

// Dimension `dim` and dimension 0 change places.
std::vector<int64_t> swapped(size_t rank, int64_t dim) {
  std::vector<int64_t> order(rank);
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[0], order[static_cast<size_t>(dim)]);
  return order;
}

std::string their_reduction(const Outgoing& out) {
  for (const ReduceOp& each : kReduceOps)
    if (each.ours == out.collective.reduction) return std::string(each.theirs);
  out.refuse("{} has no reduction '{}'", kName, name_of(out.collective.reduction));
}

std::vector<Attribute> attributes_of(const Outgoing& out) {
  const CollectiveTraits& traits = traits_of(out.collective.kind);
  using rewrite::attribute;
  std::vector<int64_t> groups;
  if (!out.of_all) groups.assign(out.members.begin(), out.members.end());
  return {attribute("collective_operation", std::string(traits.name)),
          attribute("reduce_op", traits.reduces ? their_reduction(out) : std::string("none")),
          attribute("root", traits.root != RootRole::none ? out.collective.root : int64_t{-1}),
          attribute("nb_rank", static_cast<int64_t>(out.members.size())),
          attribute("groups", groups),
          attribute("group_size", static_cast<int64_t>(groups.size()))};
}

void write(const Outgoing& out) {
  Node& node = out.node;
  const spmd::CollectiveAttributes& collective = out.collective;
  const CollectiveTraits& traits = traits_of(collective.kind);
  if (std::find(std::begin(kOperations), std::end(kOperations), collective.kind) == std::end(kOperations))
    out.refuse("{} has no {}; choose layouts that need none, or write `dialect=tessera`", kName, node.op_type);
  if (traits.root != RootRole::none && !out.of_all)
    out.refuse("{} does not document how a root is counted within a group; use a group of all ranks", kName);
  std::vector<Attribute> attributes = attributes_of(out);
  if (traits.block != BlockSide::none) require_even(out, kName);
  if (traits.block == BlockSide::both) {
    write_exchange(out, kOp, "", std::move(attributes));
    return;
  }
  Value* data = node.input(0);
  const int64_t dim = traits.block == BlockSide::none ? 0 : collective.dim;
  if (dim == 0) {
    become(out.graph, node, kOp, "", {data}, std::move(attributes));
    return;
  }
  const std::vector<int64_t> order = swapped(data->rank(), dim);
  Shape result = node.output()->shape();
  std::swap(result[0], result[static_cast<size_t>(dim)]);
  Value* turned = rewrite::transposed(out.graph, data, order, &node);
  Node* moved = put_before(out.graph, node, kOp, "", turned, std::move(result));
  moved->attributes = std::move(attributes);
  become(out.graph, node, "Transpose", "", {moved->outputs[0]}, {rewrite::attribute("perm", order)});
}

// The axes along which exactly these ranks differ, in this order.
std::vector<std::string> axes_of(const Incoming& in, const std::vector<int64_t>& ranks) {
  const Mesh& mesh = in.mesh;
  for (int64_t rank : ranks)
    if (rank < 0 || rank >= mesh.size())
      in.refuse("rank {} of its groups is not one of the {} ranks; give a `mesh` with all ranks of the groups", rank,
                mesh.size());
  auto is_group = [&](const std::vector<AxisRef>& axes) {
    const std::vector<int> members = group_of(ranks[0], axes, mesh);
    return std::equal(members.begin(), members.end(), ranks.begin(), ranks.end());
  };
  std::vector<std::vector<AxisRef>> candidates;
  constexpr size_t kMostAxes = 8;
  const size_t count = std::min(mesh.axes().size(), kMostAxes);
  for (size_t chosen = 0; chosen < size_t{1} << count; ++chosen) {
    auto& axes = candidates.emplace_back();
    for (size_t a = 0; a < count; ++a)
      if (chosen >> a & 1) axes.push_back(AxisRef::whole(mesh.axes()[a]));
  }
  for (const MeshAxis& axis : mesh.axes())
    for (int64_t pre = 1; pre < axis.size; ++pre)
      if (auto size = static_cast<int64_t>(ranks.size()); axis.size % (pre * size) == 0)
        candidates.push_back({{axis.name, pre, size}});
  for (const auto& axes : candidates) {
    if (!is_group(axes)) continue;
    std::vector<std::string> names;
    for (const AxisRef& axis : axes) names.push_back(axis.str(mesh));
    return names;
  }
  in.refuse(
      "its group {} is not the ranks that differ along some axes of the mesh {}; give a `mesh` with such axes, "
      "as a=2,b=2 for the groups 0, 2 and 1, 3",
      fmt::join(ranks, ", "), mesh.str());
}

std::vector<std::string> group_axes(const Incoming& in) {
  const Node& node = in.node;
  const std::vector<int64_t> groups = node.get_ints("groups");
  if (int64_t stated = node.get_int("group_size", 0); stated != 0 && stated != static_cast<int64_t>(groups.size()))
    in.refuse("its group_size is {}, but its groups name {}; make the two equal", stated,
              counted(groups.size(), "rank"));
  const int64_t members = groups.empty() ? in.mesh.size() : static_cast<int64_t>(groups.size());
  if (int64_t ranks = node.get_int("nb_rank", 1); ranks != members)
    in.refuse("its nb_rank is {}, but its group has {}; {}", ranks, counted(members, "rank"),
              groups.empty() ? fmt::format("give a `mesh` of {}", ranks) : "make the two equal");
  if (groups.empty()) return all_axes(in.mesh);
  if (in.rank ? std::find(groups.begin(), groups.end(), *in.rank) == groups.end() : members != in.mesh.size())
    in.refuse("its group is the ranks {}, but rank {} runs it, too; give each group its own models",
              fmt::join(groups, ", "), in.rank ? *in.rank : in.mesh.size() - 1);
  return axes_of(in, groups);
}

Reduction our_reduction(const Incoming& in) {
  const std::string name = lower_case(in.node.get_string("reduce_op", "none"));
  for (const ReduceOp& each : kReduceOps)
    if (each.theirs == name) return each.ours;
  in.refuse("its reduce_op is {}; use sum, max, min or avg", name);
}

void read(const Incoming& in) {
  Node& node = in.node;
  spmd::check_attributes(node, fmt::format("{}'s {}", kName, kOp), kAttributes);
  const std::string name = lower_case(node.get_string("collective_operation", ""));
  const auto operation = std::find_if(std::begin(kOperations), std::end(kOperations),
                                      [&](Collective each) { return name_of(each) == name; });
  if (operation == std::end(kOperations)) {
    std::vector<std::string_view> names;
    for (const Collective each : kOperations) names.push_back(name_of(each));
    in.refuse("its collective_operation is '{}'; use one of {}", name, fmt::join(names, ", "));
  }
  const std::vector<std::string> axes = group_axes(in);
  const int64_t members = digits_of(axes, in.mesh).size;
  const CollectiveTraits& traits = traits_of(*operation);
  if (traits.block == BlockSide::both) {
    read_exchange(in, axes);
    return;
  }
  spmd::CollectiveAttributes collective{.kind = *operation, .axes = axes};
  if (traits.reduces) collective.reduction = our_reduction(in);
  if (traits.root != RootRole::none) {
    if (members != in.mesh.size())
      in.refuse("TensorRT does not document how a root is counted within a group; use a group of all ranks");
    collective.root = node.get_int("root", -1);
  }
  if (traits.block != BlockSide::none) {
    if (in.shape().empty()) in.refuse("its operand is a scalar; give it a dimension");
    collective.dim = 0;
  }
  if (traits.block == BlockSide::result) collective.extent = block_of(in, 0, members);
  become(in, collective);
}

}  // namespace

EngineEntry tensorrt_engine() {
  return {kName, "", owns, write, read};
}

}  // namespace tessera::dialect
