#include "tessera/profile.h"

#include <algorithm>
#include <map>
#include <thread>

#include "tessera/api/session.h"
#include "tessera/kernels/peak.h"

namespace tessera {
inline namespace v1 {
namespace {

using Times = std::vector<runtime::RankTimes>;
using TimePoint = runtime::RankTimes::Clock::time_point;

double microseconds(TimePoint from, TimePoint to) {
  return std::chrono::duration<double, std::micro>(to - from).count();
}

// The n-th communication of one group, whichever ranks' steps it is.
struct Meeting {
  std::vector<std::string> axes;
  int leader = 0;
  int64_t number = 0;
  auto operator<=>(const Meeting&) const = default;
};

template <typename Visit>  // visit(rank, step, begin, meeting)
void for_each_communication(const Times& times, Visit visit) {
  for (size_t r = 0; r < times.size(); ++r) {
    std::map<std::pair<std::vector<std::string>, int>, int64_t> met;
    for (size_t s = 0; s < times[r].steps->size(); ++s) {
      const runtime::StepInfo& step = (*times[r].steps)[s];
      if (!step.communication) continue;
      const int64_t number = met[{step.axes, step.leader}]++;
      visit(r, s, s == 0 ? times[r].inputs : times[r].end[s - 1], Meeting{step.axes, step.leader, number});
    }
  }
}

}  // namespace

Profile Session::profile() const {
  const Times times = impl_->executor.times();
  Profile profile;
  if (times.empty()) return profile;
  TimePoint start = times[0].begin, end = times[0].outputs;
  for (const runtime::RankTimes& rank : times) {
    start = std::min(start, rank.begin);
    end = std::max(end, rank.outputs);
  }
  profile.duration = microseconds(start, end);
  for (const runtime::RankTimes& rank : times) {
    RankProfile& result = profile.ranks.emplace_back();
    TimePoint at = rank.inputs;
    for (size_t s = 0; s < rank.steps->size(); ++s) {
      const runtime::StepInfo& step = (*rank.steps)[s];
      result.events.push_back({step.name, step.op, step.communication, step.axes, microseconds(start, at),
                               microseconds(at, rank.end[s]), 0});
      at = rank.end[s];
    }
  }
  std::map<Meeting, TimePoint> complete;  // when the last member came
  for_each_communication(times, [&](size_t, size_t, TimePoint begin, const Meeting& meeting) {
    TimePoint& last = complete.emplace(meeting, begin).first->second;
    last = std::max(last, begin);
  });
  for_each_communication(times, [&](size_t r, size_t s, TimePoint begin, const Meeting& meeting) {
    ProfileEvent& event = profile.ranks[r].events[s];
    event.waiting = std::min(event.duration, microseconds(begin, complete.at(meeting)));
  });
  for (RankProfile& rank : profile.ranks) {
    for (const ProfileEvent& event : rank.events) {
      rank.exposed += event.communication ? event.duration - event.waiting : 0;
      rank.idle += event.waiting;
    }
  }
  for (size_t r = 0; r < times.size(); ++r) {
    RankProfile& rank = profile.ranks[r];
    rank.compute = microseconds(times[r].begin, times[r].outputs) - rank.exposed - rank.idle;
    rank.idle += microseconds(start, times[r].begin) + microseconds(times[r].outputs, end);
  }
  return profile;
}

MachinePeak measure_peak(DType dtype, int cores) {
  if (dtype != DType::float32 && dtype != DType::bfloat16 && dtype != DType::float16)
    throw Error(ErrorKind::user, "bench",
                "peaks are measured of float32, bfloat16 and float16, not of " + std::string(name_of(dtype)));
  // On a thread of its own: its OpenMP team ends with it. With more teams than cores, libgomp's threads would sleep
  // between loops, and what is timed afterwards would be slow.
  MachinePeak peak;
#ifdef TESSERA_THREAD_SANITIZER
  cores = 1;  // libgomp's barriers are not instrumented
#endif
  std::thread([&] { peak = {kernels::peak_flops(dtype, cores), kernels::peak_bandwidth(cores)}; }).join();
  return peak;
}

}  // namespace v1
}  // namespace tessera
