#include "tessera/bind/schedule.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "tessera/base/error.h"

namespace tessera::bind {
namespace {

/// The dependences. Tasks that use the same memory stay in the given order if one of them writes it, and so do
/// communications. A task that reads nothing, such as a fill with zeros, stays after the computation before it: run
/// earlier, it would only occupy memory.
struct Dependences {
  std::vector<std::vector<int>> needs;  ///< for each task, the tasks whose memory it waits for
  std::vector<std::vector<int>> after;  ///< for each task, the tasks that wait for its end
  std::vector<int> before;              ///< for each task, how many tasks must end before it

  explicit Dependences(const std::vector<Task>& tasks)
      : needs(needs_of(tasks)), after(tasks.size()), before(tasks.size()) {
    int computation = -1;  // the last one so far
    for (int t = 0; t < static_cast<int>(tasks.size()); ++t) {
      for (int other : needs[t]) after[other].push_back(t);
      before[t] = static_cast<int>(needs[t].size());
      if (tasks[t].communicates) continue;
      if (tasks[t].reads.empty() && needs[t].empty() && computation >= 0) {
        after[computation].push_back(t);
        before[t] = 1;
      }
      computation = t;
    }
  }
};

/// Counts the bytes that are needed while an order is made.
class Ledger {
 public:
  Ledger(const std::vector<Task>& tasks, const std::vector<Memory>& memories)
      : tasks_(tasks), memories_(memories), uses_(memories.size()), held_(memories.size()) {
    std::vector<bool> written(memories.size());
    for (const Task& task : tasks) {
      for (int memory : touched(task)) ++uses_[memory];
      for (int memory : task.writes) written[memory] = true;
    }
    for (size_t m = 0; m < memories.size(); ++m) {
      if (memories[m].kept) ++uses_[m];
      if (!written[m] && uses_[m] > 0) hold(static_cast<int>(m));
    }
  }

  /// The bytes that are needed while the task runs.
  size_t with(int task) const {
    size_t bytes = bytes_ + tasks_[task].scratch;
    for (int memory : tasks_[task].writes)
      if (!held_[memory]) bytes += memories_[memory].bytes;
    return taken_over(task) >= 0 ? bytes - memories_[taken_over(task)].bytes : bytes;
  }

  void begin(int task) {
    const int spare = taken_over(task);
    bytes_ += tasks_[task].scratch;
    for (int memory : tasks_[task].writes) hold(memory);
    if (spare >= 0) release(spare);
  }

  void end(int task) {
    bytes_ -= tasks_[task].scratch;
    for (int memory : touched(tasks_[task]))
      if (--uses_[memory] == 0) release(memory);
  }

 private:
  static std::set<int> touched(const Task& task) {
    std::set<int> all(task.reads.begin(), task.reads.end());
    all.insert(task.writes.begin(), task.writes.end());
    return all;
  }

  // The memory that the first result takes over; -1: none.
  int taken_over(int t) const {
    const Task& task = tasks_[t];
    if (!task.in_place || task.reads.empty() || task.writes.empty()) return -1;
    const int from = task.reads.front(), to = task.writes.front();
    return from != to && held_[from] && uses_[from] == 1 && memories_[from].bytes == memories_[to].bytes ? from : -1;
  }

  void hold(int memory) {
    if (!held_[memory]) bytes_ += memories_[memory].bytes;
    held_[memory] = true;
  }
  void release(int memory) {
    if (held_[memory]) bytes_ -= memories_[memory].bytes;
    held_[memory] = false;
  }

  const std::vector<Task>& tasks_;
  const std::vector<Memory>& memories_;
  std::vector<int> uses_;  // still to come
  std::vector<bool> held_;
  size_t bytes_ = 0;
};

/// The communications that have started and were not waited for. They start in the order given, so the oldest of a
/// queue has the least number.
class UnderWay {
 public:
  explicit UnderWay(const std::vector<Task>& tasks) : tasks_(tasks), has_(tasks.size()) {}

  bool empty() const { return queues_.empty(); }
  bool has(int task) const { return has_[task]; }
  bool any_of(int queue) const { return queues_.contains(queue); }
  bool is_full(int queue, int most) const {
    const auto found = queues_.find(queue);
    return found != queues_.end() && found->second.size() >= static_cast<size_t>(most);
  }
  int oldest_of(int queue) const { return queues_.at(queue).front(); }
  int oldest() const {
    int oldest = std::numeric_limits<int>::max();
    for (const auto& [queue, tasks] : queues_) oldest = std::min(oldest, tasks.front());
    return oldest;
  }
  void add(int task) {
    queues_[tasks_[task].queue].push_back(task);
    has_[task] = true;
  }
  void remove_oldest_of(int queue) {
    std::deque<int>& tasks = queues_.at(queue);
    has_[tasks.front()] = false;
    tasks.pop_front();
    if (tasks.empty()) queues_.erase(queue);
  }

 private:
  const std::vector<Task>& tasks_;
  std::map<int, std::deque<int>> queues_;  // that run any
  std::vector<bool> has_;                  // by task
};

class Overlap {
 public:
  Overlap(const std::vector<Task>& tasks, const std::vector<Memory>& memories, const Limits& limits)
      : tasks_(tasks), limits_(limits), ledger_(tasks, memories), dependences_(tasks), under_way_(tasks) {
    begun_.assign(tasks.size(), false);
    ended_.assign(tasks.size(), false);
    // For each task, the earliest communication that needs it; a communication needs itself.
    needed_by_.assign(tasks.size(), std::numeric_limits<int>::max());
    for (int t = static_cast<int>(tasks.size()) - 1; t >= 0; --t) {
      for (int later : dependences_.after[t]) needed_by_[t] = std::min(needed_by_[t], needed_by_[later]);
      if (!tasks[t].communicates) continue;
      needed_by_[t] = t;
      communications_.push_front(t);
    }
    for (int t = 0; t < static_cast<int>(tasks.size()); ++t)
      if (dependences_.before[t] == 0) add_ready(t);
  }

  std::vector<Action> run() {
    while (!ready_.empty() || !under_way_.empty()) {
      const int next = choose();
      if (next < 0)
        wait_for(awaited());
      else
        take(next);
    }
    check(actions_.size() == tasks_.size() + static_cast<size_t>(waits_), "every step is scheduled");
    return std::move(actions_);
  }

 private:
  // The next step; -1: wait for a communication first.
  int choose() const {
    if (ready_.empty()) return -1;
    if (is_sent_on()) {
      const int first = *ready_.begin();
      return first < communications_.front() && fits(first) ? first : -1;
    }
    const bool full = !communications_.empty() && is_full(communications_.front());
    if (const int needed = ready_by_need_.begin()->second; !full && fits(needed)) return needed;
    const int first = *ready_.begin();
    if (under_way_.empty() || (fits(first) && !(full && tasks_[first].communicates))) return first;
    return -1;
  }

  bool is_full(int communication) const { return under_way_.is_full(tasks_[communication].queue, limits_.under_way); }

  // The communication to wait for. All steps before the first one that has not begun have ended or are under way.
  int awaited() {
    if (is_sent_on()) return under_way_.oldest_of(tasks_[communications_.front()].queue);
    while (first_ < static_cast<int>(tasks_.size()) && begun_[first_]) ++first_;
    if (first_ == static_cast<int>(tasks_.size())) return under_way_.oldest();
    for (int need : dependences_.needs[first_])
      if (under_way_.has(need)) return under_way_.oldest_of(tasks_[need].queue);
    if (tasks_[first_].communicates && is_full(first_)) return under_way_.oldest_of(tasks_[first_].queue);
    return under_way_.oldest();
  }

  // Whether the next message waits for messages under way, and for nothing else but one step that reads them.
  bool is_sent_on() const {
    if (communications_.empty()) return false;
    const int next = communications_.front(), queue = tasks_[next].queue;
    if (!tasks_[next].message || !under_way_.any_of(queue)) return false;
    if (!tasks_[under_way_.oldest_of(queue)].message) return false;
    bool waits = false;
    for (int need : dependences_.needs[next]) {
      if (ended_[need]) continue;
      if (is_message_under_way(need)) {
        waits = true;
        continue;
      }
      if (tasks_[need].communicates) return false;
      for (int own : dependences_.needs[need])
        if (!ended_[own] && !is_message_under_way(own)) return false;
      if (ready_.contains(need)) return false;
      waits = true;
    }
    return waits;
  }

  bool is_message_under_way(int task) const { return tasks_[task].message && under_way_.has(task); }

  bool fits(int task) const { return !limits_.bytes || ledger_.with(task) <= *limits_.bytes; }

  // A communication is ready in its turn.
  void add_ready(int task) {
    if (tasks_[task].communicates && (communications_.empty() || task != communications_.front())) return;
    ready_.insert(task);
    ready_by_need_.insert({needed_by_[task], task});
  }

  void take(int task) {
    while (tasks_[task].at_once && !under_way_.empty()) wait_for(under_way_.oldest());
    ready_.erase(task);
    ready_by_need_.erase({needed_by_[task], task});
    begun_[task] = true;
    ledger_.begin(task);
    if (!tasks_[task].communicates) {
      actions_.push_back({task, Phase::run});
      return end(task);
    }
    actions_.push_back({task, Phase::start});
    communications_.pop_front();
    if (!communications_.empty() && dependences_.before[communications_.front()] == 0)
      add_ready(communications_.front());
    under_way_.add(task);
    if (tasks_[task].at_once) wait_for(task);
  }

  // The oldest of its queue.
  void wait_for(int task) {
    under_way_.remove_oldest_of(tasks_[task].queue);
    actions_.push_back({task, Phase::wait});
    ++waits_;
    end(task);
  }

  void end(int task) {
    ended_[task] = true;
    ledger_.end(task);
    for (int later : dependences_.after[task])
      if (--dependences_.before[later] == 0) add_ready(later);
  }

  const std::vector<Task>& tasks_;
  const Limits limits_;
  Ledger ledger_;
  Dependences dependences_;  // `before` counts the tasks that have not ended
  std::vector<bool> begun_, ended_;
  int first_ = 0;  // all steps before it have begun
  std::vector<int> needed_by_;
  std::deque<int> communications_;  // to come
  UnderWay under_way_;
  std::set<int> ready_;
  std::set<std::pair<int, int>> ready_by_need_;  // the same, by the communication that needs them
  std::vector<Action> actions_;
  int waits_ = 0;
};

/// The order of waiting_late().
class LateWaits {
 public:
  LateWaits(const std::vector<Task>& tasks, const std::vector<Memory>& memories, const Limits& limits)
      : tasks_(tasks), limits_(limits), ledger_(tasks, memories), under_way_(tasks) {}

  std::vector<Action> run() {
    const std::vector<std::vector<int>> needs = needs_of(tasks_);
    for (int t = 0; t < static_cast<int>(tasks_.size()); ++t) {
      for (int need : needs[t])
        while (under_way_.has(need)) wait_for(under_way_.oldest_of(tasks_[need].queue));
      if (tasks_[t].at_once)
        while (!under_way_.empty()) wait_for(under_way_.oldest());
      while (tasks_[t].communicates && under_way_.is_full(tasks_[t].queue, limits_.under_way))
        wait_for(under_way_.oldest_of(tasks_[t].queue));
      while (!under_way_.empty() && !fits(t)) wait_for(under_way_.oldest());
      begin(t);
    }
    while (!under_way_.empty()) wait_for(under_way_.oldest());
    return std::move(actions_);
  }

 private:
  bool fits(int task) const { return !limits_.bytes || ledger_.with(task) <= *limits_.bytes; }

  void begin(int task) {
    ledger_.begin(task);
    actions_.push_back({task, tasks_[task].communicates ? Phase::start : Phase::run});
    if (!tasks_[task].communicates) return ledger_.end(task);
    under_way_.add(task);
    if (tasks_[task].at_once) wait_for(task);
  }

  // The oldest of its queue.
  void wait_for(int task) {
    under_way_.remove_oldest_of(tasks_[task].queue);
    actions_.push_back({task, Phase::wait});
    ledger_.end(task);
  }

  const std::vector<Task>& tasks_;
  const Limits limits_;
  Ledger ledger_;
  UnderWay under_way_;
  std::vector<Action> actions_;
};

}  // namespace

std::vector<std::vector<int>> needs_of(const std::vector<Task>& tasks) {
  std::vector<std::vector<int>> needs(tasks.size());
  std::map<int, int> writer;                // of a memory: the last
  std::map<int, std::vector<int>> readers;  // of a memory, since then
  for (int t = 0; t < static_cast<int>(tasks.size()); ++t) {
    std::set<int> needed;
    for (int memory : tasks[t].reads)
      if (auto last = writer.find(memory); last != writer.end()) needed.insert(last->second);
    for (int memory : tasks[t].writes) {
      if (auto last = writer.find(memory); last != writer.end()) needed.insert(last->second);
      needed.insert(readers[memory].begin(), readers[memory].end());
    }
    for (int memory : tasks[t].reads) readers[memory].push_back(t);
    for (int memory : tasks[t].writes) writer[memory] = t, readers[memory].clear();
    needs[t].assign(needed.begin(), needed.end());
  }
  return needs;
}

std::vector<Span> spans_of(const std::vector<Action>& actions, size_t task_count) {
  std::vector<Span> spans(task_count);
  for (int at = 0; at < static_cast<int>(actions.size()); ++at) {
    Span& span = spans[actions[at].task];
    if (actions[at].phase != Phase::wait) span.begin = at;
    span.end = at;
  }
  return spans;
}

std::vector<Action> as_given(const std::vector<Task>& tasks) {
  std::vector<Action> actions;
  for (int t = 0; t < static_cast<int>(tasks.size()); ++t) {
    actions.push_back({t, tasks[t].communicates ? Phase::start : Phase::run});
    if (tasks[t].communicates) actions.push_back({t, Phase::wait});
  }
  return actions;
}

std::vector<Action> waiting_late(const std::vector<Task>& tasks, const std::vector<Memory>& memories,
                                 const Limits& limits) {
  return LateWaits(tasks, memories, limits).run();
}

std::vector<Action> overlapped(const std::vector<Task>& tasks, const std::vector<Memory>& memories,
                               const Limits& limits) {
  return Overlap(tasks, memories, limits).run();
}

size_t peak_bytes(const std::vector<Action>& actions, const std::vector<Task>& tasks,
                  const std::vector<Memory>& memories) {
  Ledger ledger(tasks, memories);
  size_t peak = 0;
  for (const auto& [task, phase] : actions) {
    if (phase != Phase::wait) {
      peak = std::max(peak, ledger.with(task));
      ledger.begin(task);
    }
    if (phase != Phase::start) ledger.end(task);
  }
  return peak;
}

namespace {

size_t most_bytes(const std::vector<Action>& given, const std::vector<Task>& tasks,
                  const std::vector<Memory>& memories) {
  constexpr size_t kSlack = size_t{1} << 20;
  const size_t peak = peak_bytes(given, tasks, memories);
  return peak + std::max(peak / 20, kSlack);
}

}  // namespace

std::vector<Action> schedule_in_order(const std::vector<Task>& tasks, const std::vector<Memory>& memories,
                                      int under_way) {
  return waiting_late(tasks, memories, {under_way, most_bytes(as_given(tasks), tasks, memories)});
}

std::vector<Action> schedule(const std::vector<Task>& tasks, const std::vector<Memory>& memories, int under_way) {
  std::vector<Action> given = as_given(tasks);
  if (std::none_of(tasks.begin(), tasks.end(), [](const Task& task) { return task.communicates; })) return given;
  const size_t most = most_bytes(given, tasks, memories);
  const bool by_queues =
      std::any_of(tasks.begin(), tasks.end(), [](const Task& task) { return task.queue != kComputing; });
  std::vector<Action> actions = overlapped(tasks, memories, {under_way, most});
  if (peak_bytes(actions, tasks, memories) <= most) return actions;
  return by_queues ? waiting_late(tasks, memories, {under_way, most}) : given;
}

}  // namespace tessera::bind
