#include "tessera/sim/transfer.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/cost/links.h"
#include "tessera/cost/prices.h"
#include "tessera/mesh/group.h"

namespace tessera::sim {
namespace {

// The bytes that cost::ring counts.
double whole_bytes(const CollectiveTraits& traits, const bind::Cost& cost) {
  const bool gets_whole = traits.block == BlockSide::operand || traits.kind == Collective::recv;
  return static_cast<double>(gets_whole ? cost.written
                                        : std::max(cost.read, traits.kind == Collective::broadcast ? cost.written : 0));
}

}  // namespace

Transfer transfer_of(const bind::Step& step, const Setting& setting) {
  const std::optional<Collective> kind = collective_of_op(step.info.op);
  check(kind.has_value(), "a step that communicates has a collective's operator");
  const CollectiveTraits& traits = traits_of(*kind);
  const double bytes = whole_bytes(traits, step.cost);
  Transfer transfer;
  transfer.bytes = bytes;
  if (step.info.members == 1) return transfer;
  const auto levels = cost::levels_of(parse_axes(step.info.axes, setting.mesh), setting.mesh, setting.topology);
  for (const cost::GroupLevel& level : levels) transfer.levels.push_back(level.name);
  // Messages between neighbours go both ways at once, around rings and between stages, and so do those of a
  // permutation.
  const Collective like = traits.message ? Collective::permute : *kind;
  if (const auto measured =
          cost::measured_time(setting.machine, setting.engine, like, step.info.members, setting.mesh.size(), bytes)) {
    if (levels.empty()) transfer.levels.push_back(setting.engine);
    transfer.seconds = *measured;
    transfer.measured = true;
    return transfer;
  }
  if (levels.empty())
    fail("simulate", "{} has no links over {}, which '{}' needs; add 'links' to the machine file, or give a topology",
         setting.machine.source, fmt::join(step.info.axes, ","), step.info.name);
  std::vector<cost::Level> costs;
  for (const cost::GroupLevel& level : levels) costs.push_back(level.cost);
  if (traits.message || *kind == Collective::permute) {  // may cross the farthest level
    transfer.seconds = costs.back().alpha + bytes * costs.back().beta;
    return transfer;
  }
  transfer.seconds = cost::flat_time(*kind, costs, bytes);
  return transfer;
}

Transfer message_of(int from, double bytes, const Setting& setting) {
  Transfer transfer;
  transfer.bytes = bytes;
  const int64_t ranks = setting.mesh.size(), together = setting.machine_ranks > 0 ? setting.machine_ranks : ranks;
  const bool is_near = from < together && together < ranks;
  const auto measured =
      is_near ? std::nullopt : cost::measured_time(setting.machine, setting.engine, Collective::send, 2, ranks, bytes);
  if (measured) {
    transfer.levels = {setting.engine};
    transfer.seconds = *measured;
    transfer.measured = true;
    return transfer;
  }
  if (setting.topology.axes.empty())
    fail("simulate",
         "{} has no links over which rank {} could send its outputs to rank 0; add 'links' to the machine file, or "
         "give a topology",
         setting.machine.source, from);
  const LinkLevel& link =
      is_near ? setting.topology.axes.back().levels.front() : setting.topology.axes.front().levels.back();
  transfer.levels = {link.name};
  transfer.seconds = link.alpha + bytes / link.bandwidth;
  return transfer;
}

double moved_bytes(const bind::Step& step) {
  return whole_bytes(traits_of(*collective_of_op(step.info.op)), step.cost);
}

}  // namespace tessera::sim
