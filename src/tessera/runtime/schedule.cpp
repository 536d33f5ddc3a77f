#include "tessera/runtime/schedule.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "tessera/base/error.h"

namespace tessera::runtime {
namespace {

/// What comes before what: tasks that touch the same memory, one of them writing, and communications stay in the order
/// given.
struct Dependences {
  std::vector<std::vector<int>> after;  ///< by task: those that need its end
  std::vector<int> before;              ///< by task: how many it needs the end of

  explicit Dependences(const std::vector<Task>& tasks) : after(tasks.size()), before(tasks.size()) {
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
      for (int other : needed) after[other].push_back(t);
      before[t] = static_cast<int>(needed.size());
    }
  }
};

class Overlap {
 public:
  Overlap(const std::vector<Task>& tasks, int most_under_way)
      : tasks_(tasks), most_under_way_(static_cast<size_t>(most_under_way)), dependences_(tasks) {
    // The earliest communication that needs a task, itself included.
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
    while (true) {
      const bool full = under_way_.size() == most_under_way_;
      const int next = full ? first(ready_) : first_needed();
      if (next < 0 && under_way_.empty()) break;
      if (next < 0 || (full && tasks_[next].communicates))
        wait_for_oldest();
      else
        take(next);
    }
    check(actions_.size() == tasks_.size() + static_cast<size_t>(waits_), "every step comes to its turn");
    return std::move(actions_);
  }

 private:
  static int first(const std::set<int>& set) { return set.empty() ? -1 : *set.begin(); }
  int first_needed() const { return ready_by_need_.empty() ? -1 : ready_by_need_.begin()->second; }

  // A communication is ready in its turn.
  void add_ready(int task) {
    if (tasks_[task].communicates && (communications_.empty() || task != communications_.front())) return;
    ready_.insert(task);
    ready_by_need_.insert({needed_by_[task], task});
  }

  void take(int task) {
    ready_.erase(task);
    ready_by_need_.erase({needed_by_[task], task});
    if (!tasks_[task].communicates) {
      actions_.push_back({task, Phase::run});
      return end(task);
    }
    actions_.push_back({task, Phase::start});
    communications_.pop_front();
    if (!communications_.empty() && dependences_.before[communications_.front()] == 0)
      add_ready(communications_.front());
    if (tasks_[task].at_once)
      wait_for(task);
    else
      under_way_.push_back(task);
  }

  void wait_for_oldest() {
    const int oldest = under_way_.front();
    under_way_.pop_front();
    wait_for(oldest);
  }

  void wait_for(int task) {
    actions_.push_back({task, Phase::wait});
    ++waits_;
    end(task);
  }

  void end(int task) {
    for (int later : dependences_.after[task])
      if (--dependences_.before[later] == 0) add_ready(later);
  }

  const std::vector<Task>& tasks_;
  const size_t most_under_way_;
  Dependences dependences_;  // `before` counts what has not ended
  std::vector<int> needed_by_;
  std::deque<int> communications_, under_way_;  // to come; started
  std::set<int> ready_;
  std::set<std::pair<int, int>> ready_by_need_;  // the same, after what needs them
  std::vector<Action> actions_;
  int waits_ = 0;
};

/// When a memory is needed, in actions.
struct Life {
  int first = std::numeric_limits<int>::max(), last = -1;
  int last_task = -1;     // that touches it
  int others_until = -1;  // that the other tasks do

  void extend(const Span& span, int task) {
    const auto& [begin, end] = span;
    first = std::min(first, begin);
    if (end > last) {
      if (task != last_task) others_until = last;
      last = end;
      last_task = task;
    } else if (task != last_task) {
      others_until = std::max(others_until, end);
    }
  }
};

}  // namespace

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

std::vector<Action> overlapped(const std::vector<Task>& tasks, int most_under_way) {
  return Overlap(tasks, most_under_way).run();
}

size_t peak_bytes(const std::vector<Action>& actions, const std::vector<Task>& tasks,
                  const std::vector<Memory>& memories) {
  const int end = static_cast<int>(actions.size());
  const std::vector<Span> spans = spans_of(actions, tasks.size());
  std::vector<Life> lives(memories.size());
  for (size_t t = 0; t < tasks.size(); ++t)
    for (const auto* touched : {&tasks[t].reads, &tasks[t].writes})
      for (int memory : *touched) lives[memory].extend(spans[t], static_cast<int>(t));
  // What nobody writes is there from the beginning.
  std::vector<bool> written(memories.size());
  for (const Task& task : tasks)
    for (int memory : task.writes) written[memory] = true;
  std::vector<int64_t> change(actions.size() + 1);
  for (size_t m = 0; m < memories.size(); ++m) {
    if (lives[m].last < 0) continue;
    change[written[m] ? lives[m].first : 0] += static_cast<int64_t>(memories[m].bytes);
    change[memories[m].kept ? end : lives[m].last + 1] -= static_cast<int64_t>(memories[m].bytes);
  }
  for (size_t t = 0; t < tasks.size(); ++t) {
    if (!tasks[t].in_place || tasks[t].reads.empty() || tasks[t].writes.empty()) continue;
    const int from = tasks[t].reads.front(), to = tasks[t].writes.front();
    if (lives[from].last_task != static_cast<int>(t) || lives[from].others_until >= spans[t].begin) continue;
    if (memories[from].kept || memories[from].bytes != memories[to].bytes) continue;
    change[spans[t].begin] -= static_cast<int64_t>(memories[from].bytes);
    change[lives[from].last + 1] += static_cast<int64_t>(memories[from].bytes);
  }
  int64_t now = 0, peak = 0;
  for (int64_t difference : change) peak = std::max(peak, now += difference);
  return static_cast<size_t>(peak);
}

std::vector<Action> schedule(const std::vector<Task>& tasks, const std::vector<Memory>& memories) {
  constexpr size_t kSlack = size_t{1} << 20;
  std::vector<Action> given = as_given(tasks);
  const size_t peak = peak_bytes(given, tasks, memories), most = peak + std::max(peak / 20, kSlack);
  if (std::none_of(tasks.begin(), tasks.end(), [](const Task& task) { return task.communicates; })) return given;
  for (int under_way : {4, 2, 1}) {
    std::vector<Action> actions = overlapped(tasks, under_way);
    if (peak_bytes(actions, tasks, memories) <= most) return actions;
  }
  return given;
}

}  // namespace tessera::runtime
