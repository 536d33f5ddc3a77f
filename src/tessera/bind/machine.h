#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/bind/communication.h"
#include "tessera/bind/memory.h"
#include "tessera/bind/schedule.h"
#include "tessera/bind/state_slot.h"
#include "tessera/mesh/box.h"

/// The machine program: what one rank does in a run at one set of sizes, as a list to enqueue. The passes of this
/// folder make it; runs, the memory report and `--dump=machine` read it.
namespace tessera::bind {

/// The description of a step, for profiles.
struct StepInfo {
  std::string name;  ///< of the node, or of its first result
  std::string op;
  bool communication = false;
  std::vector<std::string> axes;  ///< of a communication: the mesh axes, as the node names them
  int leader = 0;                 ///< of a communication: the first rank of the group
  int members = 1;                ///< of a communication: ranks of the group
  bool is_root = false;           ///< of a communication: this rank is the root
  int from = -1, to = -1;         ///< of a message or permutation: the ranks it comes from and goes to; -1: none
  int started = -1;               ///< of a wait: the action that started it
  Seat seat;                      ///< of its node
};

/// The cost of a step for this rank.
struct Cost {
  double flops = 0;     ///< floating-point operations; 0 if negligible (OpDef::flops)
  size_t read = 0;      ///< bytes of operands, each once; of a table, as many as are looked up
  size_t written = 0;   ///< bytes of results
  size_t received = 0;  ///< bytes that come over the links of the step's axes (tessera::received)
  size_t sent = 0;      ///< bytes that a Send, or the root of a broadcast or scatter, sends over them
};

/// A place of a value or of a piece of memory.
struct Location {
  enum class Where : uint8_t {
    none,    ///< an absent operand or result
    arena,   ///< buffer `index`
    fixed,   ///< `address`: constants, and states that never change
    input,   ///< the caller's whole input of port `index`
    output,  ///< the caller's whole output of port `index`
    state,   ///< the current value of slot `index`
    next,    ///< the spare memory of slot `index`
  };
  Where where = Where::none;
  size_t index = 0;
  const void* address = nullptr;
  size_t skip = 0;  ///< bytes before the value
};

/// The work of a group of nodes: a kernel's run or a communication.
struct Step {
  std::shared_ptr<kernels::Kernel> kernel;  ///< other steps may share it; null: the step communicates
  std::shared_ptr<Communication> communication;
  StepInfo info;
  std::vector<Location> inputs, outputs;
  std::vector<kernels::TensorDesc> operands, results;  ///< the types of these
  int scratch = -1;                                    ///< buffer; -1: none
  Cost cost;
  bool writes_state = false;  ///< over the value that it had before
  std::vector<int>
      in_place;  ///< operands in whose memory the first result may be made, or any of an element-wise group
  std::vector<const void*> in;  ///< room for addresses while the step is enqueued
  std::vector<void*> out;
  // Decisions, which a binding for other sizes repeats:
  std::vector<int> taken_over;  ///< by result: the operand in whose memory it is; -1: none
  std::vector<int> last_uses;   ///< of operands' buffers, as known before the step; -1: no buffer

  size_t scratch_bytes() const { return kernel ? kernel->scratch_bytes() : communication->scratch_bytes(); }
};

/// An action, with its queue and the action that it waits for.
struct Enqueued {
  Action action;
  int queue = kComputing;
  int after = -1;        ///< an earlier action of another queue that must have ended; -1: none
  bool signals = false;  ///< an action of another queue waits for this one
};

/// A copy of a part of the caller's whole tensor to or from the rank's own memory.
struct HostCopy {
  size_t port = 0;
  Location place;
  Box box;
  size_t element = 1;  ///< bytes of what the box counts (CopiedBox)
  size_t bytes = 0;    ///< of the part
  bool staged =
      false;           ///< the host gathers or scatters it at `staging`, since the device copies only contiguous pieces
  size_t staging = 0;  ///< offset in the rank's staging memory
};

/// A state whose next value is in its slot's spare memory after a run, or is copied there.
struct Exchange {
  size_t slot = 0;
  bool copied = false;
  Location from = {};  ///< place of the value that is copied
};

/// A loop. Each carried value has two buffers, which are exchanged after an iteration.
struct LoopPlan {
  std::string name;
  Location trips, condition;                         ///< read before the first iteration; absent: no limit, always true
  Location iteration;                                ///< where steps read the number of the iteration
  Location again;                                    ///< a condition that each iteration leaves; absent: always true
  std::vector<std::pair<size_t, size_t>> exchanged;  ///< buffers
};

/// A branch, which runs if the condition is `taken`.
struct BranchPlan {
  std::string name;
  Location condition;
  bool taken = true;
};

/// One instruction of the control flow over the actions.
struct Control {
  enum class Kind : uint8_t {
    act,     ///< action `index`
    open,    ///< read the trip count and the condition of loop `index`
    test,    ///< go to `target` unless loop `index` has an iteration to run
    ask,     ///< read the condition that the iteration has left
    back,    ///< go to `target` for another iteration, if there is one
    branch,  ///< go to `target` unless branch `index` is taken
  };
  Kind kind = Kind::act;
  int index = 0;
  int target = 0;
};

/// The content of a buffer of the arena.
struct Occupant {
  const Value* value = nullptr;  ///< made there first; null: scratch memory
  std::string name;              ///< "'y'", "scratch memory of Resize 'up'"
};

struct MachineProgram {
  std::vector<std::shared_ptr<Step>> steps;  ///< in the program's order
  /// For each step, the steps that must have ended before it: those that make what it reads, or read what it
  /// overwrites. Buffers that reuse memory of the arena also rely on the order of the actions.
  std::shared_ptr<const std::vector<std::vector<int>>> needs;
  /// By number, the name (mesh/queues.h) of the queue; the first, which computes, has none.
  std::vector<std::string> queues = {""};
  std::shared_ptr<const std::vector<Enqueued>> actions;  ///< in running order
  std::shared_ptr<const std::vector<StepInfo>> infos;    ///< of the actions
  std::vector<Control> controls;                         ///< empty: each action runs once, in order
  std::vector<LoopPlan> loops;
  std::vector<BranchPlan> branches;
  std::vector<Lifetime> buffers;                           ///< in actions
  std::shared_ptr<const std::vector<Occupant>> occupants;  ///< of the buffers
  std::vector<size_t> offsets;                             ///< of the buffers in the arena
  size_t arena_bytes = 0;
  size_t staging_bytes = 0;       ///< host memory through which parts of inputs and outputs pass
  std::vector<HostCopy> inputs;   ///< before the first action
  std::vector<HostCopy> outputs;  ///< after the last one
  std::vector<StateSlot*> slots;  ///< of states that change
  std::vector<Exchange> exchanges;

  /// The sum of all steps' costs.
  Cost total() const;
};

}  // namespace tessera::bind
