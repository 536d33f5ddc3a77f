#include <algorithm>
#include <array>

#include "tessera/dialect/engine.h"
#include "tessera/dialect/group.h"
#include "tessera/ops/infer.h"
#include "tessera/rewrite/edit.h"
#include "tessera/spmd/program.h"

// ONNX Runtime's contributed operators, domain com.microsoft, version 1 (its onnxruntime/core/graph/contrib_ops/
// collective_defs.cc): AllReduce without attributes, AllGather (axis, group_size), AllToAll (group_size), each over all
// processes.
namespace tessera::dialect {
namespace {

constexpr std::string_view kName = "ONNX Runtime";
constexpr std::string_view kDomain = "com.microsoft";
constexpr std::array<std::string_view, 3> kOps = {"AllReduce", "AllGather", "AllToAll"};
constexpr std::array<DType, 3> kReduced = {DType::float16, DType::float32, DType::float64};
constexpr std::array<DType, 5> kMoved = {DType::float16, DType::float32, DType::float64, DType::int64, DType::boolean};
constexpr int64_t kDefaultAxis = 1, kDefaultGroupSize = 1;  // of the schema

bool owns(const Node& node) {
  return node.domain == kDomain && std::find(kOps.begin(), kOps.end(), node.op_type) != kOps.end();
}

template <size_t N>
bool contains(const std::array<DType, N>& types, DType dtype) {
  return std::find(types.begin(), types.end(), dtype) != types.end();
}

void write(const Outgoing& out) {
  Node& node = out.node;
  if (std::find(kOps.begin(), kOps.end(), node.op_type) == kOps.end())
    out.refuse(
        "{} has AllReduce, AllGather and AllToAll, and no {}; choose layouts that need none, or another --dialect",
        kName, node.op_type);
  if (!out.of_all)
    out.refuse(
        "its group is the ranks {}, and {} communicates among all {}; use a mesh of one axis, or another --dialect",
        fmt::join(out.members, ", "), kName, out.mesh.size());
  Value* data = node.input(0);
  const bool reduces = node.op_type == "AllReduce";
  if (reduces ? !contains(kReduced, data->dtype()) : !contains(kMoved, data->dtype()))
    out.refuse("{}'s {} takes no {}; compute in float32, or use another --dialect", kName, node.op_type,
               name_of(data->dtype()));
  const auto members = static_cast<int64_t>(out.members.size());
  const Attribute group_size = rewrite::attribute("group_size", members);
  if (reduces) {
    if (std::string reduction = node.get_string("reduction", "sum"); reduction != "sum")
      out.refuse("{}'s AllReduce sums, and this one reduces by {}; choose layouts that need none, or another --dialect",
                 kName, reduction);
    become(out.graph, node, "AllReduce", kDomain, {data}, {});
  } else if (node.op_type == "AllGather") {
    require_even(out, spmd::kExtentAttribute, kName);
    const int64_t dim = node.get_int("dim", 0);
    become(out.graph, node, "AllGather", kDomain, {data}, {rewrite::attribute("axis", dim), group_size});
  } else {
    require_even(out, spmd::kSplitExtentAttribute, kName);
    require_even(out, spmd::kConcatExtentAttribute, kName);
    write_exchange(out, "AllToAll", kDomain, {group_size});
  }
}

void read(const Incoming& in) {
  Node& node = in.node;
  const std::vector<std::string> axes = all_axes(in.mesh);
  Value* data = node.input(0);
  const Attribute group = rewrite::attribute("axes", axes);
  if (node.op_type == "AllReduce") {
    become(in.graph, node, "AllReduce", spmd::kCommDomain, {data},
           {group, rewrite::attribute("reduction", std::string("sum"))});
    return;
  }
  if (int64_t size = node.get_int("group_size", kDefaultGroupSize); size != in.mesh.size())
    in.refuse("its group_size is {}, and there are {} ranks, among all of which {} communicates; give a --mesh of {}",
              size, in.mesh.size(), kName, size);
  if (node.op_type == "AllGather") {
    const size_t dim = ops::normalize_axis(node, node.get_int("axis", kDefaultAxis), in.shape().size());
    become(in.graph, node, "AllGather", spmd::kCommDomain, {data},
           {group, rewrite::attribute("dim", static_cast<int64_t>(dim))});
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
