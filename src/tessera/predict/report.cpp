#include "tessera/predict/report.h"

#include <algorithm>
#include <map>

namespace tessera::predict {
namespace {

using sim::ClassTimes;
using sim::Event;
using sim::Predicted;
using sim::PredictedClass;
using sim::Timeline;

constexpr double kMillis = 1e3, kMicros = 1e6;

ProfileEvent event_of(const PredictedClass& each, const Event& event) {
  const bind::StepInfo& info = (*each.infos)[static_cast<size_t>(event.action)];
  ProfileEvent shown{info.name,
                     info.op,
                     info.communication,
                     info.axes,
                     event.begin * kMicros,
                     (event.end - event.begin) * kMicros,
                     0,
                     0,
                     event.moving * kMicros,
                     event.action};
  if (info.communication)
    shown.waiting = std::clamp(event.moving - event.begin, 0.0, event.end - event.begin) * kMicros;
  return shown;
}

// As in measured profiles, a communication is shown as its wait.
RankProfile profile_of(const PredictedClass& each, const ClassTimes& times) {
  RankProfile profile;
  profile.compute = times.compute * kMicros;
  profile.overlapped = times.overlapped * kMicros;
  profile.exposed = times.exposed * kMicros;
  profile.idle = times.idle * kMicros;
  if (!times.events.empty()) profile.end = times.events.back().end * kMicros;
  for (const Event& event : times.events)
    if (each.actions[static_cast<size_t>(event.action)].action.phase != bind::Phase::start)
      profile.events.push_back(event_of(each, event));
  std::stable_sort(profile.events.begin(), profile.events.end(),
                   [](const ProfileEvent& a, const ProfileEvent& b) { return a.begin < b.begin; });
  return profile;
}

// Follows the causes back from the event that ended last.
std::vector<ChainPart> chain_of(const Predicted& predicted) {
  const auto& classes = predicted.timeline.classes;
  int c = -1, e = -1;
  double last = -1;
  for (size_t i = 0; i < classes.size(); ++i)
    if (!classes[i].events.empty())
      for (size_t k = 0; k < classes[i].events.size(); ++k)
        if (classes[i].events[k].end > last) {
          last = classes[i].events[k].end;
          c = static_cast<int>(i);
          e = static_cast<int>(k);
        }
  std::map<std::pair<std::string, bool>, ChainPart> parts;
  while (e >= 0) {
    const Event& event = classes[static_cast<size_t>(c)].events[static_cast<size_t>(e)];
    const PredictedClass& each = predicted.classes[static_cast<size_t>(c)];
    const bind::StepInfo& info = (*each.infos)[static_cast<size_t>(event.action)];
    const double before =
        event.cause_event < 0
            ? 0
            : classes[static_cast<size_t>(event.cause_class)].events[static_cast<size_t>(event.cause_event)].end;
    ChainPart& part = parts[{info.op, info.communication}];
    part.op = info.op;
    part.communication = info.communication;
    part.count += each.actions[static_cast<size_t>(event.action)].action.phase != bind::Phase::start;
    part.ms += std::max(0.0, event.end - before) * kMillis;
    c = event.cause_class;
    e = event.cause_event;
  }
  std::vector<ChainPart> chain;
  double seconds = 0;
  for (auto& [op, part] : parts) {
    seconds += part.ms / kMillis;
    chain.push_back(std::move(part));
  }
  if (const double rest = predicted.timeline.seconds - seconds; rest > 1e-9)
    chain.push_back({"copies of inputs and outputs", false, 1, rest * kMillis});
  std::stable_sort(chain.begin(), chain.end(), [](const ChainPart& a, const ChainPart& b) { return a.ms > b.ms; });
  return chain;
}

}  // namespace

Prediction report(const sim::Predicted& predicted) {
  const Timeline& timeline = predicted.timeline;
  Prediction made;
  made.step_ms = timeline.seconds * kMillis;
  made.computation_ms = timeline.kernels * kMillis;
  made.link_ms = timeline.links * kMillis;
  made.dependences_ms = timeline.chain * kMillis;
  made.bound_ms = timeline.bound() * kMillis;
  made.bound = timeline.kernels >= timeline.bound() ? "computation"
               : timeline.links >= timeline.bound() ? "link"
                                                    : "chain";
  made.extrapolated = predicted.extrapolated;
  made.profile.duration = timeline.seconds * kMicros;
  double ranks = 0;
  for (size_t c = 0; c < predicted.classes.size(); ++c) {
    const PredictedClass& each = predicted.classes[c];
    const ClassTimes& times = timeline.classes[c];
    made.classes.push_back({each.rank, each.count, times.compute * kMillis, times.overlapped * kMillis,
                            times.exposed * kMillis, times.idle * kMillis, each.cost.flops,
                            static_cast<double>(each.cost.received), static_cast<double>(each.cost.sent)});
    const auto count = static_cast<double>(each.count);
    ranks += count;
    made.compute_ms += count * times.compute * kMillis;
    made.exposed_ms += count * times.exposed * kMillis;
    made.idle_ms += count * times.idle * kMillis;
    made.profile.ranks.push_back(profile_of(each, times));
  }
  for (double* mean : {&made.compute_ms, &made.exposed_ms, &made.idle_ms}) *mean /= std::max(ranks, 1.0);
  made.chain = chain_of(predicted);
  return made;
}

}  // namespace tessera::predict
