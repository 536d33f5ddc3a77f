#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tessera::bind {

/// The queue that computes, of those of a device. Synchronous devices have no other.
inline constexpr int kComputing = 0;

/// The properties of a step that matter for the order. Memories are numbered from 0.
struct Task {
  bool communicates = false;  ///< it has a start and a wait; else it runs
  bool at_once =
      false;  ///< of a communication: its wait follows its start directly, after those of all others under way
  bool message = false;    ///< of a communication: it is between two ranks
  int queue = kComputing;  ///< of a communication: the device's queue that runs it, or else the rank's own thread does
  bool in_place = false;   ///< its first result takes over the memory of its first operand if that is not read later
  size_t scratch = 0;      ///< bytes that it needs while it runs; of a communication, from start to wait
  std::vector<int> reads, writes;
};

/// The memory of a value.
struct Memory {
  size_t bytes = 0;   ///< in the rank's arena; 0: elsewhere
  bool kept = false;  ///< read after the last step
};

enum class Phase : uint8_t { run, start, wait };

struct Action {
  int task = 0;
  Phase phase = Phase::run;
  bool operator==(const Action&) const = default;
};

/// From a task's first action to its last, both included: for a communication, from start to wait.
struct Span {
  int begin = 0, end = 0;
};
std::vector<Span> spans_of(const std::vector<Action>& actions, size_t task_count);

/// For each task, the tasks that must end before it: of two that touch the same memory, one of them writing, the first.
std::vector<std::vector<int>> needs_of(const std::vector<Task>& tasks);

/// The tasks in the order given; each communication is waited for where it starts.
std::vector<Action> as_given(const std::vector<Task>& tasks);

/// Limits on an order.
struct Limits {
  int under_way = 1;                 ///< most communications of one queue that have started but not been waited for
  std::optional<size_t> bytes = {};  ///< most bytes needed at once, as peak_bytes() counts them
};

/// Orders the tasks so that independent tasks run while a communication is under way. Communications start in the order
/// given. Between start and wait, no task writes a communication's operands, or reads or writes its results.
///
/// The next communication starts as soon as its operands are ready. Among the ready steps, run the one that the
/// earliest later communication needs (steps that none needs come last; ties follow the order given). If that exceeds
/// the limits, run the ready step that is first in the order given. If that exceeds them too, or no step is ready, wait
/// for a communication: the oldest one; where queues run them, the oldest one of the queue for which the first step in
/// the order given waits, so that the sum that a product needs does not wait for the gather of another queue. If none
/// is under way, the limit of bytes does not apply.
///
/// A message that is to be sent on should not wait for steps that nobody waits for: if the next communication is a
/// message, all that it still needs are messages under way (itself, or by one step that reads them), and the oldest
/// communication under way in its queue is a message, run only ready steps that come before it in the order given, then
/// wait. So blocks go on around a ring (passes/collective_products.h) as soon as they can.
///
/// Example with at most one under way: gather v, use v, gather w, use w. `use v` must wait, so the next step is the
/// second gather, for which the first must end: start v, wait v, start w, use v, wait w, use w.
///
/// Invariant: this order adds no deadlock. Take an order of all ranks' starts and waits in which the program as given
/// reaches its end, and in it the first start that has not happened. Before this start, its rank waits only for
/// communications that it started earlier. In the program as given it waits for them earlier, too, so all starts that
/// they need come before this one in that order, and have happened. In a rank's own thread, waits come in the order of
/// their starts, since a wait may let no communication but its own advance. Queues advance by themselves: each does one
/// communication after the other, and one begins after all that the rank has computed or waited for before its start.
/// So it waits for no more than in the program as given, whatever other queues do, and waits of two queues may come in
/// any order.
std::vector<Action> overlapped(const std::vector<Task>& tasks, const std::vector<Memory>& memories,
                               const Limits& limits);

/// The tasks in the order given; each communication is waited for as late as possible: before the first task that needs
/// its end, or where the limits would be exceeded otherwise. Needs no more bytes than as_given() if that is within the
/// limit. Starts are in the order given, and so are waits of one queue, so the invariant of overlapped() holds.
std::vector<Action> waiting_late(const std::vector<Task>& tasks, const std::vector<Memory>& memories,
                                 const Limits& limits);

/// The most bytes that are needed at once: results from the start of their writer to the end of their last reader, and
/// scratch.
size_t peak_bytes(const std::vector<Action>& actions, const std::vector<Task>& tasks,
                  const std::vector<Memory>& memories);

/// Communications that may be under way at once by default.
inline constexpr int kUnderWay = 4;

/// overlapped() with this many communications under way, and up to a twentieth more memory than the tasks as given need
/// (at least 1 MiB more). If that exceeds the limit: where queues run communications, waiting_late() with the same
/// limits; else as_given(), since a rank's own thread does little of both.
std::vector<Action> schedule(const std::vector<Task>& tasks, const std::vector<Memory>& memories,
                             int under_way = kUnderWay);
/// waiting_late() within the limits of schedule(): for tasks whose order was chosen, such as the cells of a pipeline.
std::vector<Action> schedule_in_order(const std::vector<Task>& tasks, const std::vector<Memory>& memories,
                                      int under_way = kUnderWay);

}  // namespace tessera::bind
