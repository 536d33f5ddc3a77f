#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/runtime/dry_run.h"
#include "tessera/runtime/profile.h"
#include "tessera/sim/rank_classes.h"
#include "tessera/sim/simulate.h"

/// From programs to predicted times: classes of ranks, the time of each step on a machine, and the simulation.
namespace tessera::sim {

struct PredictOptions {
  const MachineModel* machine = nullptr;
  Topology topology;  ///< the mesh's links
  std::string engine = "threads";
  std::map<int, double> slow;  ///< by rank: a factor on its kernels' times
  bool fold = true;            ///< simulate one rank for each class; false: every rank, to compare
};

/// A step's predicted time.
struct StepTime {
  double seconds = 0;  ///< of a kernel, in all iterations; of a communication, without contention
  bool measured = false;
};

struct PredictedClass {
  int rank = 0;  ///< the first rank of the class
  int64_t count = 1;
  std::shared_ptr<const std::vector<bind::StepInfo>> infos;  ///< by action
  std::vector<bind::Enqueued> actions;
  std::vector<StepTime> steps;
  bind::Cost cost;  ///< of all steps; the body of a loop counts once
};

/// A kind of collective over some axes that the program runs.
struct UsedCollective {
  std::string kind;
  std::vector<std::string> axes;
  int64_t members = 1;
  double bytes = 0;       ///< of the largest one
  bool measured = false;  ///< on that machine, and not computed
};

struct Predicted {
  RankClasses ranks;
  std::vector<PredictedClass> classes;
  Timeline timeline;
  std::vector<UsedCollective> collectives;
  double extrapolated = 0;  ///< the share of kernels' time that is computed, since the machine file lacks it
};

/// Throws user errors that name the machine file and what it lacks.
Predicted predict(const runtime::DryRun& run, const PredictOptions& options);

}  // namespace tessera::sim
