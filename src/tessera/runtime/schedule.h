#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tessera::runtime {

/// A step of a rank's plan, as the order of steps sees it. Memories are numbered from 0.
struct Task {
  bool communicates = false;  ///< it is started, and waited for later; else it runs
  bool at_once = false;       ///< of a communication: it is waited for where it starts, after all that are under way
  bool in_place = false;  ///< its first result takes over the memory of its first operand if nobody reads that later
  size_t scratch = 0;     ///< bytes that it needs while it is at work: of a communication, from start to wait
  std::vector<int> reads, writes;
};

/// Where a value lies.
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

/// From the first action upon a task to the last one, both included: of a communication, from start to wait.
struct Span {
  int begin = 0, end = 0;
};
std::vector<Span> spans_of(const std::vector<Action>& actions, size_t task_count);

/// Tasks as they are given; each communication is waited for where it starts.
std::vector<Action> as_given(const std::vector<Task>& tasks);

/// How far an order may go.
struct Limits {
  int under_way = 1;                 ///< communications that have started and not been waited for
  std::optional<size_t> bytes = {};  ///< that are needed at once, as peak_bytes counts them
};

/// The tasks in an order that runs what does not depend on a communication while it is under way. Communications start
/// in the order given. Between start and wait nobody writes what a communication reads, nor reads or writes what it
/// writes.
///
/// The next communication starts as soon as its operands are ready, and of the steps that are ready the one runs that
/// the earliest communication to come needs (those that none needs last, equals in the order given). Where that goes
/// beyond the limits, the ready step runs that comes first in the order given. If that one does, too, or no step is
/// ready, the oldest communication is waited for. Where none is under way, the limit of bytes is no limit.
///
/// Example, one under way: gather v, use v, gather w, use w. `use v` must wait, so the order given comes to the second
/// gather, for which the first must end: start v, wait v, start w, use v, wait w, use w.
///
/// No deadlock comes of it. Take an order of all ranks' starts and waits in which the program as given gets to its end,
/// and of the starts that have not happened the first in that order. What its rank waits for before it are
/// communications that it started earlier; in the program as given it waits for them earlier, too, so all starts that
/// they need come before it in that order, and have happened. Waits come in the order of their starts, for a wait may
/// let none but its own communication advance.
std::vector<Action> overlapped(const std::vector<Task>& tasks, const std::vector<Memory>& memories,
                               const Limits& limits);

/// The most bytes that are needed at once: results from the start of their writer to the end of their last reader, and
/// scratch.
size_t peak_bytes(const std::vector<Action>& actions, const std::vector<Task>& tasks,
                  const std::vector<Memory>& memories);

/// Communications that may be under way at once, unless somebody says another number.
inline constexpr int kUnderWay = 4;

/// overlapped() with so many communications under way, and a twentieth more memory than the tasks as given need, or
/// 1 MiB more if that is more; as_given() where that gets beyond this limit all the same.
std::vector<Action> schedule(const std::vector<Task>& tasks, const std::vector<Memory>& memories,
                             int under_way = kUnderWay);

}  // namespace tessera::runtime
