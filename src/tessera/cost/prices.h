#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "tessera/cost/kernels.h"
#include "tessera/cost/links.h"
#include "tessera/cost/machine_model.h"

namespace tessera::cost {

/// Seconds of a collective that the machine's file has measured among as many members and ranks; nullopt if it has not.
/// `engine`: "threads"; empty: any. `bytes` as in ring().
std::optional<double> measured_time(const MachineModel& machine, std::string_view engine, Collective kind,
                                    int64_t members, int64_t ranks, double bytes);

/// Whether an engine's collectives go on by themselves between start and wait, also between ranks of one machine.
bool moves_in_background(std::string_view engine);

/// Seconds of what choices between programs weigh, on a machine that is measured or described.
class Prices {
 public:
  /// `topology`: the mesh's links; empty: the machine's. Throws as MachineModel::topology().
  Prices(MachineModel machine, const Mesh& mesh, const Topology& topology = {});
  Prices(const Prices&) = delete;

  const MachineModel& machine() const { return machine_; }
  /// A collective of the group over these axes, level by level if that is faster; `bytes` as in ring(). Throws a user
  /// error if neither the machine's file nor the topology has links over them.
  double collective(Collective kind, const std::vector<AxisRef>& axes, double bytes) const;
  /// The units of the group that its farthest links join; 0 if its links are all of one kind.
  int64_t far_units(const std::vector<AxisRef>& axes) const;
  double kernel(const KernelWork& work) const { return times_.of(work).seconds; }
  /// A copy that reads and writes this many bytes in all.
  double copy(double bytes) const { return times_.copy(bytes); }
  /// Whether kernels run while a collective is under way.
  bool overlaps() const { return machine_.progress == MachineModel::Progress::background; }

 private:
  const std::vector<Level>& levels(const std::vector<AxisRef>& axes) const;

  MachineModel machine_;
  Mesh mesh_;
  Topology topology_;
  KernelTimes times_;
  mutable std::mutex knowing_;                                         // of levels_, so that several threads may ask
  mutable std::map<std::vector<AxisRef>, std::vector<Level>> levels_;  // those known so far
};

}  // namespace tessera::cost
