#include "tessera/schedule/list_scheduler.h"

#include <algorithm>
#include <deque>
#include <queue>

namespace tessera::schedule {
namespace {

class ListScheduler {
 public:
  ListScheduler(PipelineTable& table, const ListRules& rules) : table_(table), rules_(rules) {
    const auto stages = static_cast<size_t>(table.stages);
    forward_.resize(stages), gradient_.resize(stages);
    weights_.assign(stages, 0);
    waiting_.resize(table.ranks.size());
    free_.assign(table.ranks.size(), 0);
    for (size_t rank = 0; rank < table.ranks.size(); ++rank)
      stages_of_.push_back(table.stages_of(static_cast<int64_t>(rank)));
  }

  bool run() {
    int64_t left = 3 * table_.stages * table_.micro_batches;
    for (size_t rank = 0; rank < free_.size(); ++rank) wake(rank, 0);
    while (left > 0 && !events_.empty()) {
      const auto [now, rank] = events_.top();
      events_.pop();
      if (now < free_[rank]) continue;
      left -= step(rank, now);
    }
    return left == 0;
  }

 private:
  struct Candidate {
    Work work;
    int64_t stage;
    double ready;                         // when its operands are there
    std::pair<int64_t, int64_t> urgency;  // less is sooner
  };
  using Event = std::pair<double, size_t>;  // time, rank

  void wake(size_t rank, double time) { events_.emplace(std::max(time, free_[rank]), rank); }

  // When the result of `stage` for the next micro-batch arrives on the rank of `at`; nothing if it is not computed yet.
  std::optional<double> arrival(const std::vector<std::vector<double>>& ends, int64_t stage, int64_t at,
                                size_t next) const {
    const std::vector<double>& end = ends[static_cast<size_t>(stage)];
    if (end.size() <= next) return std::nullopt;
    const bool crosses = table_.rank_of[static_cast<size_t>(stage)] != table_.rank_of[static_cast<size_t>(at)];
    return end[next] + (crosses ? rules_.send : 0);
  }

  double held(size_t rank) const {
    double sum = 0;
    for (const int64_t each : stages_of_[rank]) {
      const auto stage = static_cast<size_t>(each);
      sum += static_cast<double>(forward_[stage].size() - gradient_[stage].size()) +
             rules_.kept * static_cast<double>(static_cast<int64_t>(gradient_[stage].size()) - weights_[stage]);
    }
    return sum;
  }

  void add_forward(std::vector<Candidate>& found, size_t rank, int64_t each) const {
    const auto stage = static_cast<size_t>(each);
    const size_t next = forward_[stage].size();
    if (static_cast<int64_t>(next) == table_.micro_batches) return;
    if (static_cast<int64_t>(next) - weights_[stage] >= rules_.most_of_stage[stage]) return;
    if (rules_.most_held > 0 && held(rank) + 1 > rules_.most_held + 1e-9) return;
    const std::optional<double> ready = each == 0 ? 0 : arrival(forward_, each - 1, each, next);
    if (ready) found.push_back({Work::forward, each, *ready, {1, -each}});
  }

  void add_gradient(std::vector<Candidate>& found, int64_t each) const {
    const auto stage = static_cast<size_t>(each);
    const size_t next = gradient_[stage].size();
    if (next == forward_[stage].size()) return;
    const std::optional<double> ready =
        each + 1 == table_.stages ? forward_[stage][next] : arrival(gradient_, each + 1, each, next);
    const int64_t order = rules_.oldest_first ? static_cast<int64_t>(next) : -each;
    if (ready) found.push_back({Work::input_gradient, each, *ready, {0, order}});
  }

  // Starts a cell of the rank, if it can; otherwise the rank sleeps until an operand arrives. Returns the cells
  // started.
  int64_t step(size_t rank, double now) {
    std::vector<Candidate> found;
    for (const int64_t stage : stages_of_[rank]) {
      add_gradient(found, stage);
      add_forward(found, rank, stage);
    }
    const auto ready = [&](const Candidate& each) {
      return each.ready <= now + (each.work == Work::input_gradient ? rules_.patience : 0);
    };
    const auto most_urgent = std::min_element(found.begin(), found.end(), [&](const Candidate& a, const Candidate& b) {
      return std::pair(!ready(a), a.urgency) < std::pair(!ready(b), b.urgency);
    });
    if (most_urgent != found.end() && ready(*most_urgent)) {
      start(rank, std::max(now, most_urgent->ready), most_urgent->work, most_urgent->stage);
      return 1;
    }
    if (!waiting_[rank].empty()) {
      start(rank, now, Work::weight_gradient, waiting_[rank].front().first);
      return 1;
    }
    double soonest = 0;
    for (const Candidate& each : found) soonest = soonest == 0 ? each.ready : std::min(soonest, each.ready);
    if (!found.empty()) wake(rank, soonest);
    return 0;
  }

  void start(size_t rank, double now, Work work, int64_t each) {
    const auto stage = static_cast<size_t>(each);
    std::vector<Cell>& cells = table_.ranks[rank];
    const double time = work == Work::forward          ? rules_.forward
                        : work == Work::input_gradient ? rules_.input_gradient
                                                       : rules_.weight_gradient;
    free_[rank] = now + time;
    if (work == Work::weight_gradient) {
      cells.push_back(cell(work, each, waiting_[rank].front().second));
      waiting_[rank].pop_front();
      ++weights_[stage];
    } else {
      std::vector<double>& ends = (work == Work::forward ? forward_ : gradient_)[stage];
      const auto micro_batch = static_cast<int64_t>(ends.size());
      cells.push_back(cell(work, each, micro_batch));
      ends.push_back(free_[rank]);
      if (work == Work::input_gradient) waiting_[rank].emplace_back(each, micro_batch);
      const int64_t other = work == Work::forward ? each + 1 : each - 1;
      if (other >= 0 && other < table_.stages)
        wake(static_cast<size_t>(table_.rank_of[static_cast<size_t>(other)]), free_[rank]);
    }
    wake(rank, free_[rank]);
  }

  PipelineTable& table_;
  const ListRules& rules_;
  std::vector<std::vector<int64_t>> stages_of_;                   // by rank
  std::vector<std::vector<double>> forward_, gradient_;           // by stage and micro-batch, when it ends
  std::vector<int64_t> weights_;                                  // by stage, weight gradients computed
  std::vector<std::deque<std::pair<int64_t, int64_t>>> waiting_;  // by rank, stage and micro-batch of weight gradients
  std::vector<double> free_;                                      // by rank
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

}  // namespace

std::optional<PipelineTable> list_schedule(PipelineTable table, const ListRules& rules) {
  ListScheduler scheduler(table, rules);
  if (!scheduler.run()) return std::nullopt;
  return table;
}

}  // namespace tessera::schedule
