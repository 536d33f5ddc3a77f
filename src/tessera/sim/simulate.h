#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tessera/bind/machine.h"
#include "tessera/cost/machine_model.h"
#include "tessera/mesh/mesh.h"

/// A discrete-event simulation of machine programs: the same actions, queues and dependences that ranks enqueue
/// (runtime/rank_plan.h), with kernels that take the given times and transfers that share links.
///
/// - A queue does one action after the other; an action begins when the one before it and its `after` have ended. On a
///   device, communications over other links have another queue, so that several can be under way at once.
/// - A collective's transfer begins once all members have started it, a message's once its sender has. It takes as long
///   as was measured, or the time of the alpha-beta model on its levels of links (cost/collectives.h). A group's
///   collectives move one after the other, and so do messages from one rank to another (Gloo and NCCL keep their
///   order); other transfers that share a level of links out of a rank, or into it, share its bandwidth equally.
/// - Where nothing moves between start and wait (MachineModel::Progress::at_wait), each rank's transfer begins only
///   while it waits.
/// - If kernels and transfers of ranks that share a machine have more threads than it has cores, they slow each other
///   down equally. Beside each other, kernels and transfers are slower by MachineModel::Overlap, too.
namespace tessera::sim {

/// A communication as it occupies links.
struct Transfer {
  double seconds = 0;               ///< if nothing disturbs it
  double bytes = 0;                 ///< as in cost::ring
  bool measured = false;            ///< on that machine
  std::vector<std::string> levels;  ///< of links, by name
};

/// A class of ranks (sim/rank_classes.h) and what each of them runs.
struct ClassProgram {
  std::shared_ptr<const bind::MachineProgram> machine;
  std::vector<double> seconds;      ///< by step: the time of its kernel
  std::vector<double> repeats;      ///< by step: iterations of the loops around it
  std::vector<Transfer> transfers;  ///< by step: of its communication, in all iterations of the loops around it
  double before = 0;                ///< seconds for copying inputs, before the first action
  double after = 0;                 ///< seconds for copying outputs, after the last action
  int rank = 0;                     ///< the rank that is simulated for the class
  int64_t count = 1;                ///< ranks of the class
};

struct Setting {
  const Mesh& mesh;
  const Topology& topology;
  const MachineModel& machine;
  const std::vector<int>& class_of;  ///< by rank
  std::string engine = "threads";    ///< whose measured collectives are used
  int threads = 1;                   ///< of each rank, if ranks share cores
  int64_t machine_ranks = 0;         ///< ranks on one machine, if they share its cores; 0: all ranks
  bool whole_permutations = false;   ///< RankClasses::whole_permutations
};

/// One execution of an action of a class; times in seconds since the run began.
struct Event {
  int action = 0;
  double begin = 0, end = 0;
  double moving = 0, moved = 0;  ///< of a wait, or a start in a queue of its own: its transfer's begin and end
  double shared = 0;             ///< the seconds that this transfer lost to others, before it or on its links
  int cause_class = -1, cause_event = -1;  ///< what it waited for last; -1: nothing
};

struct ClassTimes {
  std::vector<Event> events;  ///< in the order in which they end
  double compute = 0;         ///< time in kernels and copies; after the program, as means over the class' ranks
  double overlapped = 0;      ///< the part of it in which a transfer was under way
  double exposed = 0;         ///< time in waits while a transfer was under way, and in deliveries
  double idle = 0;            ///< the rest, until the last class ends
  double ended = 0;           ///< when its program had, and copies of outputs; without deliveries
};

struct Timeline {
  double seconds = 0;  ///< of the run
  std::vector<ClassTimes> classes;
  /// Lower bounds for any order of the actions: the kernels of the busiest class, the transfers of the busiest level of
  /// links, and the longest chain of dependent actions. Deliveries come after all of them.
  double kernels = 0, links = 0, chain = 0;
  bool at_wait = false;  ///< each rank's transfers move only while it waits
  double bound() const { return std::max({kernels, links, chain}); }
};

/// The actions that are simulated, in order: bodies of loops once (steps' times count the iterations), and of two
/// branches the one that a true condition takes.
std::vector<int> running_order(const bind::MachineProgram& machine);

Timeline simulate(const std::vector<ClassProgram>& classes, const Setting& setting);

}  // namespace tessera::sim
