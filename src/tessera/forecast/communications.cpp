// Which part of a wait has which cause. Example: a rank makes the operand of an all-reduce of 5 ms, runs 1 ms of
// operators beside it, and waits 4 ms. If 2 ms of other operators, which come later in the rank's order, need neither
// the result nor are needed for the operand, then 3 ms could be hidden at most: 2 ms have nothing to hide behind. The
// other 2 ms are due to the order.
#include "tessera/forecast/communications.h"

#include <algorithm>
#include <bit>
#include <map>

#include "tessera/forecast/events.h"

namespace tessera::forecast {
namespace {

using sim::Event;
using sim::PredictedClass;

// A communication as it was simulated, in seconds.
struct Simulated {
  int task = 0, start = 0;  // its step, and the action that starts it
  const Event* wait = nullptr;
  double started = 0;  // the rank begins its start
  double free = 0;     // from here on the rank has nothing else to do than wait
  double arrived = 0;  // the rank takes part in the transfer
  double moving = 0, moved = 0;
  double shared = 0;  // of the transfer's seconds: lost to other transfers
};

std::vector<Simulated> simulated_of(const PredictedClass& each, const std::vector<Event>& events) {
  std::vector<Simulated> all;
  std::map<int, const Event*> starts;  // by action
  double free = events.empty() ? 0 : events.front().begin;
  for (const Event& event : events) {
    const bind::Enqueued& it = enqueued(each, event);
    const bind::StepInfo& info = info_of(each, event);
    if (it.action.phase == bind::Phase::start) {
      starts[event.action] = &event;
      continue;
    }
    if (it.action.phase == bind::Phase::wait && info.members > 1)
      if (const auto found = starts.find(info.started); found != starts.end()) {
        const Event& start = *found->second;
        const bool has_queue = each.actions[static_cast<size_t>(info.started)].queue != it.queue;
        const Event& moves = has_queue ? start : event;
        all.push_back({it.action.task, info.started, &event, start.begin, std::min(event.begin, free), start.begin,
                       moves.moving, moves.moved, moves.shared});
      }
    free = event.end;
  }
  return all;
}

// By communication: the seconds of the kernels that neither come before it nor after it, whatever the order. Goes
// through the steps for 64 communications at a time, with a bit for each.
std::vector<double> independent_seconds(const PredictedClass& each, const std::vector<Simulated>& communications,
                                        const std::vector<double>& kernels) {
  std::vector<double> independent(communications.size());
  const std::vector<std::vector<int>>& needs = *each.needs;
  for (size_t first = 0; first < communications.size(); first += 64) {
    const size_t count = std::min<size_t>(64, communications.size() - first);
    std::vector<uint64_t> own(needs.size()), after(needs.size()), before(needs.size());
    for (size_t i = 0; i < count; ++i) own[static_cast<size_t>(communications[first + i].task)] |= uint64_t{1} << i;
    for (size_t s = 0; s < needs.size(); ++s)
      for (const int need : needs[s]) after[s] |= after[static_cast<size_t>(need)] | own[static_cast<size_t>(need)];
    for (size_t s = needs.size(); s-- > 0;)
      for (const int need : needs[s]) before[static_cast<size_t>(need)] |= before[s] | own[s];
    const uint64_t all = count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
    for (size_t s = 0; s < needs.size(); ++s)
      if (kernels[s] > 0)
        for (uint64_t left = all & ~(after[s] | before[s]); left != 0; left &= left - 1)
          independent[first + static_cast<size_t>(std::countr_zero(left))] += kernels[s];
  }
  return independent;
}

// What a rank holds during each of its actions.
class Holdings {
 public:
  explicit Holdings(const PredictedClass& each) : held_(each.actions.size() + 1), made_(each.actions.size()) {
    const int end = static_cast<int>(each.actions.size());
    for (const bind::Lifetime& buffer : each.buffers) {  // inputs exist before the first action, outputs after the last
      held_[static_cast<size_t>(std::clamp(buffer.first, 0, end))] += buffer.bytes;
      held_[static_cast<size_t>(std::clamp(buffer.last + 1, 0, end))] -= buffer.bytes;
      if (buffer.first >= 0 && buffer.first < end) made_[static_cast<size_t>(buffer.first)] += buffer.bytes;
    }
    for (size_t a = 1; a < held_.size(); ++a) held_[a] += held_[a - 1];
    for (const size_t bytes : held_) most_ = std::max(most_, bytes);
  }
  // Whether what `start` makes fits beside what is held during an earlier action.
  bool fits(int start, int action) const {
    return held_[static_cast<size_t>(action)] + made_[static_cast<size_t>(start)] <= most_;
  }

 private:
  std::vector<size_t> held_, made_;
  size_t most_ = 0;
};

class Causes {
 public:
  Causes(const PredictedClass& each, const std::vector<Event>& events, bool at_wait)
      : each_(each),
        at_wait_(at_wait),
        communications_(simulated_of(each, events)),
        kernels_(each.steps.size()),
        last_(each.steps.size(), -1),
        holdings_(each) {
    for (const Event& event : events)
      if (const bind::Action& action = enqueued(each, event).action; action.phase == bind::Phase::run)
        kernels_[static_cast<size_t>(action.task)] += each.steps[static_cast<size_t>(action.task)].seconds;
    for (size_t a = 0; a < each.actions.size(); ++a)
      last_[static_cast<size_t>(each.actions[a].action.task)] = static_cast<int>(a);
    if (each.needs && !at_wait) independent_ = independent_seconds(each, communications_, kernels_);
  }

  const std::vector<Simulated>& communications() const { return communications_; }

  WaitCauses of(size_t c) const {
    const Simulated& it = communications_[c];
    const double end = it.wait->end;
    // A transfer may be slower beside kernels, or on other members, than it is alone on this rank.
    const double own = std::max(each_.steps[static_cast<size_t>(it.task)].seconds, it.moved - it.moving - it.shared);
    const double alone_until = std::clamp(it.arrived, it.free, end), met = std::clamp(it.moving, alone_until, end);
    double rest = end - met;
    const auto take = [&](double most) {
      const double taken = std::clamp(most, 0.0, rest);
      rest -= taken;
      return taken * kMillis;
    };
    WaitCauses causes;
    causes.late_peer_ms = (met - alone_until) * kMillis;
    if (at_wait_) {
      causes.no_work_ms = take(rest);
      return causes;
    }
    if (!independent_.empty()) causes.no_work_ms = take(own - independent_[c]);
    causes.busy_link_ms = (alone_until - it.free) * kMillis + take(it.shared);
    const Earlier earlier = earlier_start(it, rest);
    causes.order_ms = take(earlier.in_memory);
    causes.memory_ms = take(earlier.all - earlier.in_memory);
    causes.order_ms += take(rest);
    return causes;
  }

 private:
  // By how many seconds of kernels a communication could start earlier.
  struct Earlier {
    double all = 0;        // once its operands are made
    double in_memory = 0;  // the part after the last action beside which there is no room for what it makes
  };
  // Up to `most` seconds.
  Earlier earlier_start(const Simulated& it, double most) const {
    int ready = 0;  // the action from which on it could start
    if (each_.needs)
      for (const int need : (*each_.needs)[static_cast<size_t>(it.task)])
        ready = std::max(ready, last_[static_cast<size_t>(need)] + 1);
    Earlier earlier;
    bool fits = true;
    for (int action = it.start - 1; action >= ready && earlier.all < most; --action) {
      const bind::Action& before = each_.actions[static_cast<size_t>(action)].action;
      fits = fits && holdings_.fits(it.start, action);
      if (before.phase != bind::Phase::run) continue;
      earlier.all += kernels_[static_cast<size_t>(before.task)];
      if (fits) earlier.in_memory = earlier.all;
    }
    return earlier;
  }

  const PredictedClass& each_;
  bool at_wait_;
  std::vector<Simulated> communications_;
  std::vector<double> kernels_;      // by step: seconds, if it ran
  std::vector<int> last_;            // by step: its last action
  std::vector<double> independent_;  // by communication; empty: not known
  Holdings holdings_;
};

// The kernels that run between a communication's start and its end, longest first.
std::vector<OperatorBeside> behind(const PredictedClass& each, const std::vector<Event>& events, const Simulated& it) {
  std::map<std::pair<std::string, std::string>, double> seconds;
  const auto ends_before = [](const Event& event, double time) { return event.end < time; };
  auto at = std::lower_bound(events.begin(), events.end(), it.started, ends_before);  // in the order of their ends
  for (; at != events.end() && at->begin < it.wait->end; ++at) {
    const double beside = std::min(it.wait->end, at->end) - std::max(it.started, at->begin);
    const bind::StepInfo& info = info_of(each, *at);
    if (beside > 0 && enqueued(each, *at).action.phase == bind::Phase::run) seconds[{info.op, info.name}] += beside;
  }
  std::vector<OperatorBeside> all;
  for (const auto& [key, time] : seconds) all.push_back({key.first, key.second, time * kMillis});
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.ms > b.ms; });
  constexpr size_t kMost = 3;
  all.resize(std::min(all.size(), kMost));
  return all;
}

}  // namespace

std::vector<PredictedCommunication> communications_of(const sim::Predicted& predicted) {
  if (predicted.classes.empty()) return {};
  const PredictedClass& each = predicted.classes.front();
  const std::vector<Event>& events = predicted.timeline.classes.front().events;
  const Causes causes(each, events, predicted.timeline.at_wait);
  std::vector<PredictedCommunication> all;
  for (size_t c = 0; c < causes.communications().size(); ++c) {
    const Simulated& it = causes.communications()[c];
    const bind::StepInfo& info = info_of(each, *it.wait);
    const bind::Cost& cost = each.costs[static_cast<size_t>(it.task)];
    PredictedCommunication& made = all.emplace_back();
    made.tensor = info.name;
    made.kind = traits_of(*collective_of_op(info.op)).name;
    made.axes = info.axes;
    made.bytes = static_cast<double>(std::max(cost.received, cost.sent));
    made.ms = each.steps[static_cast<size_t>(it.task)].seconds * kMillis;
    made.waits = causes.of(c);
    made.behind = behind(each, events, it);
  }
  return all;
}

}  // namespace tessera::forecast
