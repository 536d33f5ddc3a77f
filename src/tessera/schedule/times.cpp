// Start and end of each cell: the longest path through its rank's order and its operands. See check.cpp for the graph.
#include <algorithm>

#include "tessera/schedule/index.h"

namespace tessera::schedule {
namespace {

void require_costs(const PipelineTable& table, const PipelineCosts& costs) {
  const auto require = [&](const std::vector<double>& values, std::string_view what) {
    if (std::ssize(values) != table.stages)
      fail("pipeline", "there are {} for {} stages, but the table has {}; give one for each", what, values.size(),
           table.stages);
    for (const double value : values)
      if (!(value >= 0 && value < 1e300)) fail("pipeline", "{} must be numbers of at least 0", what);
  };
  require(costs.forward, "times of forward passes");
  require(costs.input_gradient, "times of input gradients");
  require(costs.weight_gradient, "times of weight gradients");
  require(costs.activations, "activations");
  require(std::vector<double>(costs.forward.size(), costs.send), "times of sends");
  if (!(costs.kept >= 0 && costs.kept <= 1)) fail("pipeline", "the kept share of activations must be between 0 and 1");
}

double time_of(const Action& action, const PipelineCosts& costs) {
  const auto stage = static_cast<size_t>(action.stage);
  switch (action.work) {
    case Work::forward:
      return costs.forward[stage];
    case Work::backward:
      return costs.input_gradient[stage] + costs.weight_gradient[stage];
    case Work::input_gradient:
      return costs.input_gradient[stage];
    case Work::weight_gradient:
      return costs.weight_gradient[stage];
    default:
      return 0;
  }
}

// What an action allocates; less than 0: it frees.
double held_by(const Action& action, const PipelineCosts& costs) {
  const double all = costs.activations[static_cast<size_t>(action.stage)];
  switch (action.work) {
    case Work::forward:
      return all;
    case Work::backward:
      return -all;
    case Work::input_gradient:
      return -all * (1 - costs.kept);
    case Work::weight_gradient:
      return -all * costs.kept;
    default:
      return 0;
  }
}

// Cells in an order in which each comes after what it waits for, with their times.
class Simulation {
 public:
  Simulation(const CellList& list, const std::vector<Message>& messages, const PipelineCosts& costs)
      : list_(list), costs_(costs), operands_(list.cells.size()), start(list.cells.size()), end(start), waited(start) {
    for (const Message& message : messages)
      operands_[static_cast<size_t>(message.to)].push_back(
          {message.crosses ? message.leaves : message.from, message.crosses ? costs.send : 0});
    run();
  }

 private:
  struct Operand {
    int64_t from;
    double send;
  };

  void run() {
    std::vector<bool> done(list_.cells.size(), false);
    std::vector<int64_t> next(list_.begin.begin(), list_.begin.end() - 1);
    std::vector<std::vector<size_t>> asleep(list_.cells.size());  // ranks that wait for a cell
    std::vector<size_t> awake;
    for (size_t rank = 0; rank < next.size(); ++rank) awake.push_back(rank);
    while (!awake.empty()) {
      const size_t rank = awake.back();
      awake.pop_back();
      for (; next[rank] < list_.begin[rank + 1]; ++next[rank]) {
        const auto cell = static_cast<size_t>(next[rank]);
        const auto missing = std::find_if(operands_[cell].begin(), operands_[cell].end(),
                                          [&](const Operand& each) { return !done[static_cast<size_t>(each.from)]; });
        if (missing != operands_[cell].end()) {
          asleep[static_cast<size_t>(missing->from)].push_back(rank);
          break;
        }
        place(cell, next[rank] > list_.begin[rank] ? end[cell - 1] : 0);
        done[cell] = true;
        awake.insert(awake.end(), asleep[cell].begin(), asleep[cell].end());
      }
    }
  }

  void place(size_t cell, double free) {
    start[cell] = free;
    for (const Operand& each : operands_[cell]) {
      const double arrives = end[static_cast<size_t>(each.from)] + each.send;
      if (arrives <= start[cell]) continue;
      start[cell] = arrives;
      waited[cell] = std::min(each.send, arrives - free);
    }
    end[cell] = start[cell];
    for_each_action(list_.cells[cell].cell, [&](const Action& action) { end[cell] += time_of(action, costs_); });
  }

  const CellList& list_;
  const PipelineCosts& costs_;
  std::vector<std::vector<Operand>> operands_;

 public:
  std::vector<double> start, end, waited;  // by cell; waited: the part of the idle time before it that a link takes
};

bool has(const Cell& cell, bool forward) {
  bool found = false;
  for_each_action(
      cell, [&](const Action& action) { found |= computes(action.work) && (action.work == Work::forward) == forward; });
  return found;
}

PipelineRankTime rank_time(const CellList& list, const Simulation& simulated, size_t rank, double step,
                           const PipelineCosts& costs) {
  PipelineRankTime time;
  const auto begin = static_cast<size_t>(list.begin[rank]), end = static_cast<size_t>(list.begin[rank + 1]);
  size_t first_gradient = end, last_forward = begin;
  for (size_t cell = begin; cell < end; ++cell) {
    if (first_gradient == end && has(list.cells[cell].cell, false)) first_gradient = cell;
    if (has(list.cells[cell].cell, true)) last_forward = cell;
  }
  double free = 0, held = 0;
  if (begin < end) time.first = simulated.start[begin];
  for (size_t cell = begin; cell < end; ++cell) {
    const double gap = simulated.start[cell] - free;
    if (cell <= first_gradient) {
      time.idle.warm_up += gap;
    } else if (cell > last_forward) {
      time.idle.tail += gap;
    } else {
      time.idle.link += simulated.waited[cell];
      time.idle.imbalance += gap - simulated.waited[cell];
    }
    free = simulated.end[cell];
    time.busy += free - simulated.start[cell];
    for_each_action(list.cells[cell].cell, [&](const Action& action) {
      held += held_by(action, costs);
      time.activations = std::max(time.activations, held);
    });
  }
  time.last = free;
  time.idle.tail += step - free;
  return time;
}

}  // namespace
}  // namespace tessera::schedule

namespace tessera {
inline namespace v1 {

PipelineCosts even_pipeline_costs(const PipelineTable& table, double forward, double input_gradient,
                                  double weight_gradient, double send) {
  const auto stages = static_cast<size_t>(table.stages);
  const double share = static_cast<double>(table.ranks.size()) / static_cast<double>(stages);
  PipelineCosts costs;
  costs.forward.assign(stages, forward * share);
  costs.input_gradient.assign(stages, input_gradient * share);
  costs.weight_gradient.assign(stages, weight_gradient * share);
  costs.activations.assign(stages, share);
  costs.send = send;
  return costs;
}

PipelineTimes time_pipeline(const PipelineTable& table, const PipelineCosts& costs) {
  using namespace schedule;
  require_costs(table, costs);
  const CellList list(table);
  const Index index(table, list);
  const Simulation simulated(list, messages_of(table, list, index), costs);
  PipelineTimes times;
  for (const double end : simulated.end) times.step = std::max(times.step, end);
  double busiest = 0, longest = 0;
  for (size_t rank = 0; rank < table.ranks.size(); ++rank) {
    const PipelineRankTime& time = times.ranks.emplace_back(rank_time(list, simulated, rank, times.step, costs));
    busiest = std::max(busiest, time.busy);
    longest = std::max(longest, time.last - time.first);
    times.start.emplace_back(table.ranks[rank].size());
    times.end.emplace_back(table.ranks[rank].size());
    for (int64_t cell = list.begin[rank]; cell < list.begin[rank + 1]; ++cell) {
      const auto slot = static_cast<size_t>(list.cells[static_cast<size_t>(cell)].slot);
      times.start[rank][slot] = simulated.start[static_cast<size_t>(cell)];
      times.end[rank][slot] = simulated.end[static_cast<size_t>(cell)];
    }
  }
  times.bubble = longest > 0 ? 1 - busiest / longest : 0;
  return times;
}

}  // namespace v1
}  // namespace tessera
