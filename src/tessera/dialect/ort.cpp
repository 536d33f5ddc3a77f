#include <algorithm>
#include <array>

#include "tessera/base/counted.h"
#include "tessera/dialect/engine.h"
#include "tessera/dialect/group.h"
#include "tessera/ops/library/infer.h"
#include "tessera/rewrite/edit.h"
#include "tessera/spmd/program.h"

// ONNX Runtime's contributed operators, domain com.microsoft, version 1 (its onnxruntime/core/graph/contrib_ops/
// collective_defs.cc): AllReduce without attributes, AllGather (axis, group_size), AllToAll (group_size), each over all
// processes.
namespace tessera::dialect {
namespace {

using spmd::AttributeKind;
using spmd::AttributeSchema;

constexpr std::string_view kName = "ONNX Runtime";
constexpr std::string_view kDomain = "com.microsoft";
constexpr std::array<DType, 3> kReduced = {DType::float16, DType::float32, DType::float64};
constexpr std::array<DType, 5> kMoved = {DType::float16, DType::float32, DType::float64, DType::int64, DType::boolean};
constexpr int64_t kDefaultAxis = 1, kDefaultGroupSize = 1;  // of the schema
constexpr AttributeSchema kAxis{"axis", AttributeKind::integer, false},
    kGroupSize{"group_size", AttributeKind::integer, false};

struct Operator {
  std::string_view op;
  std::span<const DType> types;
  std::vector<AttributeSchema> attributes;
};
const std::array<Operator, 3>& operators() {
  static const std::array<Operator, 3> table = {Operator{"AllReduce", kReduced, {}},
                                                Operator{"AllGather", kMoved, {kAxis, kGroupSize}},
                                                Operator{"AllToAll", kMoved, {kGroupSize}}};
  return table;
}

const Operator* find(std::string_view op) {
  for (const Operator& each : operators())
    if (each.op == op) return &each;
  return nullptr;
}

bool owns(const Node& node) {
  return node.domain == kDomain && find(node.op_type);
}

bool takes(const Operator& op, DType dtype) {
  return std::find(op.types.begin(), op.types.end(), dtype) != op.types.end();
}

std::string types_of(const Operator& op) {
  std::vector<std::string_view> names;
  for (DType dtype : op.types) names.push_back(name_of(dtype));
  return fmt::format("{}", fmt::join(names, ", "));
}

void write(const Outgoing& out) {
  Node& node = out.node;
  const Operator* op = find(node.op_type);
  if (!op && (node.op_type == "Send" || node.op_type == "Recv"))
    out.refuse(
        "{} has no messages between two ranks; do not split the dimension whose parts ranks exchange, compile "
        "with ring_attention \"never\" and overlap \"off\" (`ring_attention=never`, `overlap=off`), or use another "
        "`dialect`",
        kName);
  if (!op)
    out.refuse(
        "{} has AllReduce, AllGather and AllToAll, and no {}; choose layouts that need none, or another `dialect`",
        kName, node.op_type);
  if (!out.of_all)
    out.refuse(
        "its group is the ranks {}, but {} communicates among all {}; use a mesh of one axis, or another `dialect`",
        fmt::join(out.members, ", "), kName, out.mesh.size());
  Value* data = node.input(0);
  if (!takes(*op, data->dtype()))
    out.refuse("{}'s {} does not support {}; compute in float32, or use another `dialect`", kName, node.op_type,
               name_of(data->dtype()));
  const auto members = static_cast<int64_t>(out.members.size());
  const Attribute group_size = rewrite::attribute("group_size", members);
  if (node.op_type == "AllReduce") {
    if (const Reduction reduction = out.collective.reduction; reduction != Reduction::sum)
      out.refuse("{}'s AllReduce sums, and this one reduces by {}; choose layouts that need none, or another `dialect`",
                 kName, name_of(reduction));
    become(out.graph, node, "AllReduce", kDomain, {data}, {});
  } else if (node.op_type == "AllGather") {
    require_even(out, kName);
    become(out.graph, node, "AllGather", kDomain, {data}, {rewrite::attribute("axis", out.collective.dim), group_size});
  } else {
    require_even(out, kName);
    write_exchange(out, "AllToAll", kDomain, {group_size});
  }
}

void read(const Incoming& in) {
  Node& node = in.node;
  const std::vector<std::string> axes = all_axes(in.mesh);
  Value* data = node.input(0);
  const Operator& op = *find(node.op_type);
  spmd::check_attributes(node, fmt::format("{}'s {}", kName, op.op), op.attributes);
  if (!takes(op, data->dtype()))
    in.refuse("its operand is {}, but {}'s {} takes {}; put a Cast before it", name_of(data->dtype()), kName, op.op,
              types_of(op));
  if (node.op_type == "AllReduce") {
    become(in, {.kind = Collective::all_reduce, .axes = axes});
    return;
  }
  if (!node.find_attribute("group_size") && in.mesh.size() != kDefaultGroupSize)
    in.refuse("its group_size is missing, so it is {}, but there are {}; give it group_size = {}", kDefaultGroupSize,
              counted(in.mesh.size(), "rank"), in.mesh.size());
  if (int64_t size = node.get_int("group_size", kDefaultGroupSize); size != in.mesh.size())
    in.refuse("its group_size is {}, but there are {}, and {} communicates among all of them; give a `mesh` of {}",
              size, counted(in.mesh.size(), "rank"), kName, size);
  if (node.op_type == "AllGather") {
    const size_t dim = ops::normalize_axis(node, node.get_int("axis", kDefaultAxis), in.shape().size());
    become(in, {.kind = Collective::all_gather, .axes = axes, .dim = static_cast<int64_t>(dim)});
  } else {
    if (in.shape().empty()) in.refuse("its operand is a scalar; give it a dimension to exchange blocks of");
    read_exchange(in, axes);
  }
}

}  // namespace

EngineEntry ort_engine() {
  return {kName, kDomain, owns, write, read};
}

}  // namespace tessera::dialect
