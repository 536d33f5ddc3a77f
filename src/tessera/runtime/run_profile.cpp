#include "tessera/runtime/run_profile.h"

#include <algorithm>
#include <map>
#include <string>

#include "tessera/base/error.h"

namespace tessera::runtime {
namespace {

using Times = std::vector<RankTimes>;
using TimePoint = RankTimes::Clock::time_point;

double microseconds(TimePoint from, TimePoint to) {
  return std::chrono::duration<double, std::micro>(to - from).count();
}

// Identifies the n-th communication of one group across ranks.
struct Meeting {
  std::vector<std::string> axes;
  int leader = 0;
  int64_t number = 0;
  auto operator<=>(const Meeting&) const = default;
};

// Below, `e` is the number of a step among those that ran.
TimePoint begin_of(const RankTimes& times, size_t e) {
  return e == 0 ? times.inputs : times.done[e - 1].end;
}

const StepInfo& step_of(const RankTimes& times, size_t e) {
  return (*times.steps)[times.done[e].step];
}

bool is_wait(const StepInfo& step) {
  return step.started >= 0;
}

// A wait that directly follows its start is one event with it.
bool is_wait_at_once(const RankTimes& times, size_t e) {
  return e > 0 && e < times.done.size() && is_wait(step_of(times, e)) &&
         step_of(times, e).started == static_cast<int>(times.done[e - 1].step);
}

// By rank: the meetings to which the starts of communications belong.
using Meetings = std::vector<std::map<size_t, Meeting>>;
Meetings meetings_of(const Times& times) {
  Meetings meetings(times.size());
  for (size_t r = 0; r < times.size(); ++r) {
    std::map<std::pair<std::vector<std::string>, int>, int64_t> met;
    for (size_t e = 0; e < times[r].done.size(); ++e) {
      const StepInfo& step = step_of(times[r], e);
      if (!step.communication || is_wait(step)) continue;
      meetings[r].emplace(e, Meeting{step.axes, step.leader, met[{step.axes, step.leader}]++});
    }
  }
  return meetings;
}

// When the last member arrived.
std::map<Meeting, TimePoint> complete_times(const Times& times, const Meetings& meetings) {
  std::map<Meeting, TimePoint> complete;
  for (size_t r = 0; r < times.size(); ++r)
    for (const auto& [e, meeting] : meetings[r]) {
      TimePoint& last = complete.emplace(meeting, begin_of(times[r], e)).first->second;
      last = std::max(last, begin_of(times[r], e));
    }
  return complete;
}

RankProfile profile_of(const RankTimes& times, const std::map<size_t, Meeting>& meetings,
                       const std::map<Meeting, TimePoint>& complete, TimePoint start) {
  RankProfile result;
  struct Started {
    size_t e;
    double time = 0;  // of operators since
  };
  std::map<size_t, Started> under_way;  // by the step that starts it
  for (size_t e = 0; e < times.done.size(); ++e) {
    const StepInfo& step = step_of(times, e);
    const TimePoint end = times.done[e].end;
    ProfileEvent event{step.name,
                       step.op,
                       step.communication,
                       step.axes,
                       microseconds(start, begin_of(times, e)),
                       microseconds(begin_of(times, e), end)};
    event.action = static_cast<int64_t>(times.done[e].step);
    event.bytes = static_cast<double>(times.done[e].bytes);
    event.cell = step.seat.cell();
    if (!step.communication) {
      if (!under_way.empty()) result.overlapped += event.duration;
      for (auto& [other, started] : under_way) started.time += event.duration;
    } else if (!is_wait(step)) {
      under_way[times.done[e].step] = {e};
      if (is_wait_at_once(times, e + 1)) continue;
    } else {
      const auto at = under_way.find(static_cast<size_t>(step.started));
      check(at != under_way.end(), "a step waits for a communication that has started");
      const Started& started = at->second;
      const TimePoint begin = begin_of(times, is_wait_at_once(times, e) ? started.e : e);
      event.begin = microseconds(start, begin);
      event.duration = microseconds(begin, end);
      const TimePoint met = complete.at(meetings.at(started.e));
      const double missing = microseconds(begin, met);
      event.waiting = std::clamp(missing, 0.0, event.duration);
      event.under_way = started.time;
      event.moving_end = event.begin + event.duration;
      event.moving_begin = std::min(microseconds(start, met), event.moving_end);
      under_way.erase(at);
    }
    result.exposed += event.communication ? event.duration - event.waiting : 0;
    result.idle += event.waiting;
    result.events.push_back(std::move(event));
  }
  result.end = microseconds(start, times.outputs);
  result.compute = microseconds(times.begin, times.outputs) - result.exposed - result.idle;
  return result;
}

}  // namespace

Profile profile_of(const std::vector<RankTimes>& times) {
  Profile profile;
  if (times.empty()) return profile;
  TimePoint start = times[0].begin, end = times[0].outputs;
  for (const RankTimes& rank : times) {
    start = std::min(start, rank.begin);
    end = std::max(end, rank.outputs);
  }
  profile.duration = microseconds(start, end);
  const Meetings meetings = meetings_of(times);
  const std::map<Meeting, TimePoint> complete = complete_times(times, meetings);
  for (size_t r = 0; r < times.size(); ++r) {
    RankProfile& rank = profile.ranks.emplace_back(profile_of(times[r], meetings[r], complete, start));
    rank.idle += microseconds(start, times[r].begin) + microseconds(times[r].outputs, end);
  }
  return profile;
}

}  // namespace tessera::runtime
