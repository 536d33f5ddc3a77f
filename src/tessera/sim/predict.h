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
  std::map<int, double> slow;  ///< factors on the times of single ranks' kernels
  bool fold = true;            ///< one rank stands for its class; false: each is simulated, to compare
};

/// The time of a step that was predicted.
struct StepTime {
  double seconds = 0;  ///< of a kernel, in all iterations; of a communication, if nothing disturbs it
  bool measured = false;
};

struct PredictedClass {
  int rank = 0;  ///< the first
  int64_t count = 1;
  /// Of actions. Without messages, classes share them (RankClasses::bound_like): the leaders of groups are the first
  /// class's.
  std::shared_ptr<const std::vector<bind::StepInfo>> infos;
  std::vector<bind::Enqueued> actions;
  std::shared_ptr<const std::vector<std::vector<int>>> needs;  ///< of steps (bind::MachineProgram)
  std::vector<StepTime> steps;
  std::vector<bind::Cost> costs;  ///< of steps, each once
  std::vector<double> repeats;    ///< of steps: iterations of the loops around them
  bind::Cost cost;                ///< the costs' sum
  double copied = 0;              ///< seconds in which inputs come and outputs go
};

/// A kind of collective over some axes, as the program has it.
struct UsedCollective {
  std::string kind;
  std::vector<std::string> axes;
  int64_t members = 1;
  double bytes = 0;       ///< of the largest
  bool measured = false;  ///< on that machine
};

struct Predicted {
  RankClasses ranks;
  std::vector<PredictedClass> classes;
  Timeline timeline;
  std::vector<UsedCollective> collectives;
  double extrapolated = 0;  ///< the share of kernels' time that was not measured on the machine
};

/// Throws user errors that name the machine file and what it lacks.
Predicted predict(const runtime::DryRun& run, const PredictOptions& options);

}  // namespace tessera::sim
