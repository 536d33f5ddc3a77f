#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/runtime/dry_run.h"
#include "tessera/runtime/profile.h"
#include "tessera/sim/deliveries.h"
#include "tessera/sim/rank_classes.h"
#include "tessera/sim/simulate.h"

/// From programs to predicted times: classes of ranks, the time of each step on a machine, and the simulation.
namespace tessera::sim {

struct PredictOptions {
  const MachineModel* machine = nullptr;
  Topology topology;  ///< the mesh's links
  std::string engine = "threads";
  int64_t process_ranks = 0;   ///< ranks that live in each process; 0: all
  std::map<int, double> slow;  ///< by rank: a factor on its kernels' times
  bool fold = true;            ///< simulate one rank for each class; false: every rank, to compare
  bool fold_similar = false;   ///< for each class of similar_classes_of()
};

/// A step's predicted time.
struct StepTime {
  double seconds = 0;  ///< of a kernel, in all iterations; of a communication, without contention
  bool measured = false;
};

struct PredictedClass {
  int rank = 0;  ///< the first rank of the class
  int64_t count = 1;
  /// By action. Without messages, classes share them (RankClasses::bound_like): the leaders of groups are the first
  /// class's.
  std::shared_ptr<const std::vector<bind::StepInfo>> infos;
  std::vector<bind::Enqueued> actions;
  std::vector<bind::Lifetime> buffers;                         ///< in actions; of the first class only
  std::shared_ptr<const std::vector<std::vector<int>>> needs;  ///< of steps (bind::MachineProgram)
  std::vector<StepTime> steps;
  std::vector<bind::Cost> costs;  ///< by step; the body of a loop counts once
  std::vector<double> repeats;    ///< by step: iterations of the loops around it
  bind::Cost cost;                ///< the costs' sum
  double copied = 0;              ///< seconds for copying inputs and outputs
};

/// A kind of collective over some axes that the program runs.
struct UsedCollective {
  std::string kind;
  std::vector<std::string> axes;
  int64_t members = 1;
  double bytes = 0;       ///< of the largest one
  bool measured = false;  ///< on that machine, and not computed
  bool outside = false;   ///< messages to rank 0 after the programs, in which it receives outputs
};

struct Predicted {
  RankClasses ranks;
  std::vector<PredictedClass> classes;
  Timeline timeline;
  std::vector<UsedCollective> collectives;
  double extrapolated = 0;  ///< the share of kernels' time that is computed, since the machine file lacks it
  double uncertain = 0;     ///< the share of kernels' time whose measurements did not agree
};

/// What a class of ranks runs, before its steps have times.
struct ClassWork {
  std::shared_ptr<const bind::MachineProgram> machine;
  std::shared_ptr<const std::vector<bind::StepWork>> works;  ///< by step
};

/// How the ranks of a run share machines.
struct RunConditions {
  int threads = 1;            ///< of each rank
  int64_t machine_ranks = 0;  ///< ranks on one machine; 0: all
};

/// Classes of ranks with the times of their steps, ready to be simulated.
struct Workload {
  RankClasses ranks;
  std::vector<ClassProgram> programs;        ///< by class
  std::vector<std::vector<StepTime>> steps;  ///< by class
  std::vector<UsedCollective> collectives;
  std::vector<Delivery> deliveries;  ///< of outputs, to the process of rank 0
  double extrapolated = 0;           ///< the share of kernels' time that was not measured on the machine
  double uncertain = 0;              ///< the share whose measurements did not agree
  RunConditions conditions;
};

/// What follows a kernel's signature in machine files, since its time depends on it: how many ranks of the machine run
/// at once (`teams`), and how many threads run the kernel.
std::string condition(int threads, int teams);
/// The condition() of such runs' kernels on a machine with so many cores.
std::string condition_of(const RunConditions& conditions, int64_t ranks, int cores);

/// The times of classes' steps on a machine. Throws user errors that name the machine file and what it lacks.
Workload priced(const Mesh& mesh, const RankClasses& ranks, const std::vector<ClassWork>& classes,
                const RunConditions& conditions, const PredictOptions& options);

/// The plans of one rank of each class; classes with equal machine programs share one. Kernels are left out.
std::vector<ClassWork> planned(const runtime::DryRun& run, const RankClasses& ranks, const std::string& device);

/// Simulates what has times.
Predicted simulated(Workload workload, const Mesh& mesh, const PredictOptions& options);

/// All of these, of a program. Throws user errors that name the machine file and what it lacks.
Predicted predict(const runtime::DryRun& run, const PredictOptions& options);

}  // namespace tessera::sim
