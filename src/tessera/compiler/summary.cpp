#include "tessera/compiler/summary.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/saturated.h"
#include "tessera/mesh/group.h"

namespace tessera::compiler {
namespace {

// "AllReduce" → "all_reduce"
std::string snake_case(std::string_view name) {
  std::string result;
  for (char c : name) {
    bool upper = c >= 'A' && c <= 'Z';
    if (upper && !result.empty()) result += '_';
    result += upper ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return result;
}

class BytesOfRank0 {
 public:
  explicit BytesOfRank0(const spmd::Program& program) : program_(program), origin_(program.mesh.axes().size(), 0) {}

  int64_t of(const Expr& expr) const {
    return saturated(spmd::hinted(bind_rank(expr, program_.mesh, origin_), program_.hints));
  }
  int64_t of(const Value* value) const {
    return value ? static_cast<int64_t>(bytes_of(value->dtype(), of(product(value->shape())))) : 0;
  }

 private:
  const spmd::Program& program_;
  std::vector<int64_t> origin_;
};

// The bytes that one member receives, with the algorithms that move the least.
int64_t received(const Node& node, int64_t members, const BytesOfRank0& bytes) {
  int64_t in = 0, out = 0;
  for (const Value* value : node.inputs) in += bytes.of(value);
  for (const Value* value : node.outputs) out += bytes.of(value);
  if (node.op_type == "AllGather" || node.op_type == "Gather") return out - out / members;
  if (node.op_type == "AllReduce") return 2 * (in - in / members);
  if (node.op_type == "ReduceScatter" || node.op_type == "AllToAll") return in - in / members;
  return out;
}

bool is_local(std::string_view op_type) {
  return op_type == "RankId" || op_type == "AxisIndex" || op_type == "Neighbor";
}

}  // namespace

ReshardSummary summarize(const spmd::ReshardRecord& record, const spmd::Program& program) {
  return {record.value,
          record.consumer,
          record.from.str(program.mesh),
          record.to.str(program.mesh),
          record.steps,
          BytesOfRank0(program).of(record.bytes)};
}

ProgramSummary summarize(const spmd::Program& program) {
  ProgramSummary summary;
  summary.shapes = program.hints;
  BytesOfRank0 bytes(program);
  for (const auto& node : program.graph->nodes()) {
    if (node->domain != spmd::kCommDomain || is_local(node->op_type)) continue;
    const auto* named = node->get<std::vector<std::string>>("axes");
    std::vector<std::string> axes = named ? *named : std::vector<std::string>{};
    int64_t members = 1;
    for (const std::string& axis : axes) members *= parse_axis(axis, program.mesh).size;
    std::string kind = snake_case(node->op_type);
    auto same = [&](const CollectiveSummary& known) { return known.kind == kind && known.axes == axes; };
    auto known = std::find_if(summary.collectives.begin(), summary.collectives.end(), same);
    if (known == summary.collectives.end())
      known = summary.collectives.insert(known, CollectiveSummary{kind, axes, 0, 0});
    ++known->count;
    known->bytes += received(*node, members, bytes);
  }
  for (const spmd::ExtentEquality& equality : program.equal_extents)
    summary.equal_sizes.push_back(fmt::format("{} = {} ({})", equality.a.str(), equality.b.str(), equality.node));
  for (const spmd::ReshardRecord& record : program.reshards) summary.reshards.push_back(summarize(record, program));
  return summary;
}

}  // namespace tessera::compiler
