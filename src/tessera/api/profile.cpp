#include "tessera/profile.h"

#include <algorithm>
#include <map>
#include <thread>

#include "tessera/api/session.h"
#include "tessera/kernels/peak.h"
#include "tessera/launch/engines.h"
#include "tessera/launch/gather_times.h"

namespace tessera {
inline namespace v1 {
namespace {

using Times = std::vector<runtime::RankTimes>;
using TimePoint = runtime::RankTimes::Clock::time_point;

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

TimePoint begin_of(const runtime::RankTimes& times, size_t step) {
  return step == 0 ? times.inputs : times.end[step - 1];
}

bool is_wait(const runtime::StepInfo& step) {
  return step.started >= 0;
}

// A wait that directly follows its start is one event with it.
bool is_at_once(const std::vector<runtime::StepInfo>& steps, size_t wait) {
  return steps[wait].started == static_cast<int>(wait) - 1;
}

// By rank and step: the meeting to which a communication's start belongs.
using Meetings = std::vector<std::map<size_t, Meeting>>;
Meetings meetings_of(const Times& times) {
  Meetings meetings(times.size());
  for (size_t r = 0; r < times.size(); ++r) {
    std::map<std::pair<std::vector<std::string>, int>, int64_t> met;
    for (size_t s = 0; s < times[r].steps->size(); ++s) {
      const runtime::StepInfo& step = (*times[r].steps)[s];
      if (!step.communication || is_wait(step)) continue;
      meetings[r].emplace(s, Meeting{step.axes, step.leader, met[{step.axes, step.leader}]++});
    }
  }
  return meetings;
}

// When the last member arrived.
std::map<Meeting, TimePoint> complete_times(const Times& times, const Meetings& meetings) {
  std::map<Meeting, TimePoint> complete;
  for (size_t r = 0; r < times.size(); ++r)
    for (const auto& [step, meeting] : meetings[r]) {
      TimePoint& last = complete.emplace(meeting, begin_of(times[r], step)).first->second;
      last = std::max(last, begin_of(times[r], step));
    }
  return complete;
}

RankProfile profile_of(const runtime::RankTimes& times, const std::map<size_t, Meeting>& meetings,
                       const std::map<Meeting, TimePoint>& complete, TimePoint start) {
  RankProfile result;
  const std::vector<runtime::StepInfo>& steps = *times.steps;
  std::map<size_t, double> under_way;  // by start: the time of operators since
  for (size_t s = 0; s < steps.size(); ++s) {
    const runtime::StepInfo& step = steps[s];
    ProfileEvent event{step.name,
                       step.op,
                       step.communication,
                       step.axes,
                       microseconds(start, begin_of(times, s)),
                       microseconds(begin_of(times, s), times.end[s]),
                       0,
                       0};
    if (!step.communication) {
      if (!under_way.empty()) result.overlapped += event.duration;
      for (auto& [other, time] : under_way) time += event.duration;
    } else if (!is_wait(step)) {
      under_way[s] = 0;
      if (s + 1 < steps.size() && is_wait(steps[s + 1]) && is_at_once(steps, s + 1)) continue;
    } else {
      const auto started = under_way.find(static_cast<size_t>(step.started));
      const TimePoint begin = begin_of(times, is_at_once(steps, s) ? started->first : s);
      event.begin = microseconds(start, begin);
      event.duration = microseconds(begin, times.end[s]);
      const double missing = microseconds(begin, complete.at(meetings.at(started->first)));
      event.waiting = std::clamp(missing, 0.0, event.duration);
      event.under_way = started->second;
      under_way.erase(started);
    }
    result.exposed += event.communication ? event.duration - event.waiting : 0;
    result.idle += event.waiting;
    result.events.push_back(std::move(event));
  }
  result.compute = microseconds(times.begin, times.outputs) - result.exposed - result.idle;
  return result;
}

}  // namespace

Profile Session::profile() const {
  Times times = impl_->executor.times();
  Profile profile;
  if (times.empty()) return profile;
  if (const auto& connection = impl_->connection)
    times = launch::gather_times(*connection->impl().world, connection->launch().rank, times[0]);
  TimePoint start = times[0].begin, end = times[0].outputs;
  for (const runtime::RankTimes& rank : times) {
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

MachinePeak measure_peak(DType dtype, int cores) {
  if (dtype != DType::float32 && dtype != DType::bfloat16 && dtype != DType::float16)
    throw Error(ErrorKind::user, "bench",
                "peaks are measured of float32, bfloat16 and float16, not of " + std::string(name_of(dtype)));
  // Measures on a thread of its own, whose OpenMP team ends with it. With more teams than cores, libgomp's threads
  // would sleep between loops and slow down later timings.
  MachinePeak peak;
#ifdef TESSERA_THREAD_SANITIZER
  cores = 1;  // libgomp's barriers are not instrumented
#endif
  std::thread([&] { peak = {kernels::peak_flops(dtype, cores), kernels::peak_bandwidth(cores)}; }).join();
  return peak;
}

}  // namespace v1
}  // namespace tessera
