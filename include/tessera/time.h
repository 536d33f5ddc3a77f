#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/cost/machine_model.h"
#include "tessera/launch.h"
#include "tessera/pipeline.h"
#include "tessera/profile.h"

/// Predicted times: simulates a program on a machine that was measured or described (docs/time.md).
namespace tessera {
inline namespace v1 {

/// The machines that come with Tessera, by name: "h100-sxm".
std::vector<std::string> known_machines();

/// The machine of that name, or of a machine file. Throws a user error if there is neither, or if the file is invalid.
MachineModel load_machine(const std::string& name_or_path);

struct CompileOptions;

struct PredictSettings {
  MachineModel machine;
  Topology topology;  ///< of the mesh's links; empty: the machine's
  /// Of ranks that are processes; null: ranks are threads. Predictions use collectives that were measured on its
  /// engine.
  std::shared_ptr<Connection> connection;
  SymbolSizes sizes;         ///< missing ones are those that choices by cost assumed
  int threads_per_rank = 0;  ///< 0: the machine's cores divided among the ranks, if they share them
  bool overlap = true;
  bool fold = true;  ///< one rank stands for all that do the same; false: each is simulated
  /// Rank 0 stands for all ranks that run the same program, although their extents may differ by a unit of a dimension:
  /// sooner, and nearly the same.
  bool fold_similar = false;
  std::map<int64_t, double> slow;            ///< by rank: a factor on the times of its kernels
  std::map<std::string, double> link_scale;  ///< by level of links: a factor on its bandwidth

  /// The links of a mesh: `topology`, or the machine's. For CompileOptions, too. Throws as MachineModel::topology().
  Topology links(const Mesh& mesh) const;
  /// Lets a compilation choose by the times of the machine and of these links; by bytes if it has none for the mesh.
  /// Neither `slow` nor `link_scale` change choices.
  void choose(CompileOptions& options, const Mesh& mesh) const;
};

/// Milliseconds of a rank of a class, whose ranks do the same at the same times. compute + exposed + idle is the step's
/// time.
struct PredictedRanks {
  int64_t rank = 0;          ///< the first of the class
  int64_t count = 1;         ///< ranks of the class
  double compute_ms = 0;     ///< in operators
  double overlapped_ms = 0;  ///< the part of compute_ms in which communication was under way
  double exposed_ms = 0;     ///< in communication that no computation hides
  double idle_ms = 0;        ///< waiting for other ranks
  double flops = 0;
  double received_bytes = 0, sent_bytes = 0;
};

/// How much one kind of operator contributes to the chain of actions that ends last, in which each waited for the one
/// before it. Copies of inputs and outputs are one entry.
struct ChainPart {
  std::string op;
  bool communication = false;
  int64_t count = 0;
  double ms = 0;
};

/// The collectives of a kind over some axes in a step, as means over all ranks.
struct PredictedCollective {
  std::string kind;  ///< "all_reduce"
  std::vector<std::string> axes;
  double count = 0;
  double ms = 0;          ///< of the transfers, if nothing disturbs them
  double exposed_ms = 0;  ///< in which ranks wait for the transfers, all members having arrived
};

/// Why a rank waits for communications, in milliseconds. Each reason takes what those before it leave.
struct WaitCauses {
  double late_peer_ms = 0;  ///< until the last member of the group starts
  /// The transfer takes longer than all operators together that neither make its operands nor need its result. All of
  /// it if transfers move only while ranks wait for them.
  double no_work_ms = 0;
  double busy_link_ms = 0;  ///< other transfers come before it, or share its links
  /// It could have started earlier, but for memory: what it makes would have exceeded the most that the rank holds.
  double memory_ms = 0;
  double order_ms = 0;  ///< the rest: it could have started earlier, or other operators could run while it moves

  double exposed_ms() const { return no_work_ms + busy_link_ms + memory_ms + order_ms; }
  double total_ms() const { return late_peer_ms + exposed_ms(); }
  WaitCauses& operator+=(const WaitCauses& other) {
    late_peer_ms += other.late_peer_ms;
    no_work_ms += other.no_work_ms;
    busy_link_ms += other.busy_link_ms;
    memory_ms += other.memory_ms;
    order_ms += other.order_ms;
    return *this;
  }
};

/// One of WaitCauses, as all reports name it.
struct WaitCause {
  const char* name;  ///< "late peer"
  const char* key;   ///< in JSON: "late_peer_ms"
  double WaitCauses::*ms;
};

/// All of them, in the order in which they take their parts of a wait.
inline constexpr WaitCause kWaitCauses[] = {
    {"late peer", "late_peer_ms", &WaitCauses::late_peer_ms},
    {"no work", "no_work_ms", &WaitCauses::no_work_ms},
    {"busy link", "busy_link_ms", &WaitCauses::busy_link_ms},
    {"memory", "memory_ms", &WaitCauses::memory_ms},
    {"order", "order_ms", &WaitCauses::order_ms},
};

/// An operator that runs while a communication is under way.
struct OperatorBeside {
  std::string op, name;
  double ms = 0;
};

/// One communication of a step, on the first rank of the first class.
struct PredictedCommunication {
  std::string tensor;  ///< whose elements move, as the program names it
  std::string kind;    ///< "all_reduce"
  std::vector<std::string> axes;
  double bytes = 0;                    ///< that the rank receives, or sends with a message
  double ms = 0;                       ///< of the transfer, if nothing disturbs it
  WaitCauses waits;                    ///< of the rank for this communication
  std::vector<OperatorBeside> behind;  ///< which run between its start and its end, longest first; at most three

  double exposed_ms() const { return waits.exposed_ms(); }
  /// The part of it that computation hides.
  double hidden() const { return ms > 0 ? std::max(0.0, 1 - exposed_ms() / ms) : 1; }
};

/// The idle time of a pipeline's ranks.
struct PipelineBubble {
  /// 1 - the operators' time of the busiest rank / the longest time between a rank's first cell and its last one, both
  /// without what comes before and after the cells.
  double share = 0;
  std::vector<PipelineIdle> ranks;  ///< milliseconds, by rank of the profile; waits for other axes' ranks count, too
};

/// Of a predicted or measured run; nullopt if no operator belongs to a pipeline's cell.
std::optional<PipelineBubble> pipeline_bubble(const Profile& profile);

struct Prediction {
  double step_ms = 0;
  /// Means over all ranks.
  double compute_ms = 0, exposed_ms = 0, idle_ms = 0;
  /// No order of the same operators can beat this bound. It is the longest of three: a rank's operators, the transfers
  /// of the busiest link, and the longest chain of operators that depend on each other.
  double bound_ms = 0;
  std::string bound;  ///< which of the three: "computation", "link" or "chain"
  double computation_ms = 0, link_ms = 0, dependences_ms = 0;
  double extrapolated = 0;  ///< the share of operators' time that was computed, since the machine lacks measurements
  double uncertain = 0;     ///< the share whose measurements did not agree, as on a machine that does other work
  std::vector<PredictedRanks> classes;
  std::vector<ChainPart> chain;  ///< by decreasing time
  std::vector<PredictedCollective> collectives;
  std::vector<PredictedCommunication> communications;  ///< in the order of their ends
  WaitCauses waits;                                    ///< for all of these
  std::optional<PipelineBubble> bubble;                ///< of a pipeline, by class
  Profile profile;                                     ///< with one rank of each class
};

/// Called with what is measured next.
using MeasurementObserver = std::function<void(const std::string& what)>;

/// Measures this machine: kernels, memory, links between ranks that are threads. Takes under a minute, or a quarter of
/// that with `quick`.
MachineModel calibrate_machine(bool quick = false, const MeasurementObserver& begins = nullptr);

/// Whether the model describes a machine like this one: same processor, instruction sets and number of cores.
bool is_this_machine(const MachineModel& machine);

/// Measures what predict() would have to extrapolate, kernels and collectives, and adds it to the settings' machine.
/// Returns whether anything was missing. Every rank of a connection makes this call with equal settings; rank 0
/// measures the kernels. Throws a user error if the machine is another one.
bool measure_missing(const Program& program, PredictSettings& settings, const MeasurementObserver& begins = nullptr);

/// Throws user errors that name the machine file and what it lacks.
Prediction predict(const Program& program, const PredictSettings& settings);

/// An execution trace, or what belongs to it.
struct TraceFile {
  std::string suffix;  ///< of its name: ".0.et"
  std::string bytes;
};

/// The same, and what was simulated in the form of MLCommons' Chakra, version 0.0.4, for simulators of networks such as
/// ASTRA-sim: for each class of ranks `traces` gets a file ".RANK.et", where RANK is the first of the class; for all,
/// ".groups.json" (the groups that nodes name: ASTRA-sim's configuration of communicator groups) and ".classes.json"
/// (for each file's rank, the ranks that it stands for). Durations are those of the prediction, in microseconds.
Prediction predict(const Program& program, const PredictSettings& settings, std::vector<TraceFile>& traces);

}  // namespace v1
}  // namespace tessera
