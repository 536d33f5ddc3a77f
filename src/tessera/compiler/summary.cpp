#include "tessera/compiler/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tessera/base/saturated.h"
#include "tessera/ir/collective.h"
#include "tessera/ir/flow.h"
#include "tessera/mesh/group.h"
#include "tessera/spmd/collective_attributes.h"

namespace tessera::compiler {
namespace {

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

int64_t received_by_rank0(Collective kind, const Node& node, int64_t members, const BytesOfRank0& bytes) {
  int64_t in = 0, out = 0;
  for (const Value* value : node.inputs) in += bytes.of(value);
  for (const Value* value : node.outputs) out += bytes.of(value);
  return received(kind, in, out, members, [](int64_t whole, int64_t parts) { return whole / parts; });
}

}  // namespace

ReshardSummary summarize(const spmd::ReshardRecord& record, const spmd::Program& program) {
  return {record.value,
          record.consumer,
          record.from.str(program.mesh),
          record.to.str(program.mesh),
          record.steps,
          BytesOfRank0(program).of(record.bytes),
          record.reason};
}

ProgramSummary summarize(const spmd::Program& program) {
  ProgramSummary summary;
  summary.shapes = program.hints;
  BytesOfRank0 bytes(program);
  std::set<int64_t> buckets;  // counted so far
  const flow::Flow flow = flow::flow_of(*program.graph);
  for (const auto& node : program.graph->nodes()) {
    if (!spmd::communication_of(*node)) continue;
    const spmd::CollectiveAttributes collective = spmd::read_collective(*node, program.mesh);
    const std::vector<std::string>& axes = collective.axes;
    int64_t members = 1;
    for (const std::string& axis : axes) members *= parse_axis(axis, program.mesh).size;
    const std::string kind(name_of(collective.kind));
    auto same = [&](const CollectiveSummary& known) { return known.kind == kind && known.axes == axes; };
    auto known = std::find_if(summary.collectives.begin(), summary.collectives.end(), same);
    if (known == summary.collectives.end())
      known = summary.collectives.insert(known, CollectiveSummary{kind, axes, 0, 0, 0});
    const int64_t runs = bytes.of(flow::runs_of(flow, node.get()));
    known->count += runs;
    if (!collective.bucket || buckets.insert(*collective.bucket).second) known->starts += runs;
    known->bytes += runs * received_by_rank0(collective.kind, *node, members, bytes);
  }
  for (const spmd::ExtentEquality& equality : program.equal_extents)
    summary.equal_sizes.push_back(fmt::format("{} = {} ({})", equality.a.str(), equality.b.str(), equality.node));
  for (const spmd::ReshardRecord& record : program.reshards) summary.reshards.push_back(summarize(record, program));
  return summary;
}

}  // namespace tessera::compiler
