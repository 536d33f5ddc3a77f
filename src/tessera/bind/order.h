#pragma once

#include <set>

#include "tessera/bind/places.h"
#include "tessera/bind/regions.h"
#include "tessera/bind/subject.h"

namespace tessera::bind {

/// A communication, which is prepared before the order is known: the order must know what it needs.
struct PreparedCommunication {
  std::shared_ptr<Communication> communication;
  StepInfo info;
  std::set<std::string, std::less<>> asked;  ///< the symbols on which it depends
};
PreparedCommunication prepare_communication(Rank& rank, const NodeGroup& group, const Sizes& sizes);

/// Groups as the schedule sees them.
struct Tasks {
  std::vector<Task> tasks;
  std::vector<Memory> memories;
};

/// `scratch`: of communications, by group, in bytes. `over`: results that overwrite a state's value. `direct`: results
/// with a place outside the arena. A user error if one tensor is more than the rank's memory limit.
Tasks tasks_of(const Subject& subject, const std::vector<NodeGroup>& groups, const Values& values,
               const std::vector<size_t>& scratch, const std::map<const Value*, const Value*>& over,
               const Destinations& direct);

/// The steps' actions in running order; in each section alone where there are branches or loops.
std::vector<Action> order_of(const Tasks& tasks, const std::vector<NodeGroup>& groups, const Regions& regions,
                             const Options& options);

/// When each step runs.
struct Order {
  std::vector<std::vector<int>> needs;  ///< by step: steps that must have ended before it
  std::vector<Action> actions;          ///< upon the steps, in running order
  std::vector<Span> spans;              ///< by step, in actions

  int end() const { return static_cast<int>(actions.size()); }
};
Order in_order(const Tasks& tasks, const std::vector<NodeGroup>& groups, const Regions& regions,
               const Options& options);

/// The queue of each action, and the actions of the other queue that it waits for. `spans`: by step.
std::vector<Enqueued> on_queues(const std::vector<Action>& actions, const std::vector<Span>& spans,
                                bool is_asynchronous);

}  // namespace tessera::bind
