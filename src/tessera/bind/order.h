#pragma once

#include <set>

#include "tessera/bind/places.h"
#include "tessera/bind/regions.h"
#include "tessera/bind/subject.h"

namespace tessera::bind {

/// A communication, prepared before the order is made, because the order depends on the memory that it needs.
struct PreparedCommunication {
  std::shared_ptr<Communication> communication;
  StepInfo info;
  std::set<std::string, std::less<>> asked;  ///< the symbols on which it depends
};
PreparedCommunication prepare_communication(Rank& rank, const NodeGroup& group, const Sizes& sizes);

/// The groups as tasks for the scheduler.
struct Tasks {
  std::vector<Task> tasks;
  std::vector<Memory> memories;
  std::vector<std::string> queues = {""};  ///< MachineProgram::queues

  std::vector<int> queue_of() const;  ///< by task; kComputing, if it does not communicate
};

/// `scratch`: the communications' bytes of scratch memory, by group. `over`: results that overwrite a state's value.
/// `direct`: results with a place outside the arena. Throws a user error if a single tensor exceeds the rank's memory
/// limit.
Tasks tasks_of(const Subject& subject, const std::vector<NodeGroup>& groups, const Values& values,
               const std::vector<size_t>& scratch, const std::map<const Value*, const Value*>& over,
               const Destinations& direct);

/// The steps' actions in running order. If there are branches or loops, each section is ordered separately.
std::vector<Action> order_of(const Tasks& tasks, const std::vector<NodeGroup>& groups, const Regions& regions,
                             const Options& options);

/// When each step runs.
struct Order {
  std::vector<std::vector<int>> needs;  ///< for each step, the steps that must have ended before it
  std::vector<Action> actions;          ///< in running order
  std::vector<Span> spans;              ///< by step, in actions

  int end() const { return static_cast<int>(actions.size()); }
};
Order in_order(const Tasks& tasks, const std::vector<NodeGroup>& groups, const Regions& regions,
               const Options& options);

/// The actions with their queues, and with the actions of other queues that they wait for. `spans`, `queue_of`: by
/// step; kComputing: the step has no queue of its own.
std::vector<Enqueued> on_queues(const std::vector<Action>& actions, const std::vector<Span>& spans,
                                const std::vector<int>& queue_of);

}  // namespace tessera::bind
