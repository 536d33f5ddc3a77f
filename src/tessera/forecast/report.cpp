#include "tessera/forecast/report.h"

#include <algorithm>
#include <map>

#include "tessera/forecast/communications.h"
#include "tessera/forecast/events.h"

namespace tessera::forecast {
namespace {

using sim::ClassTimes;
using sim::Event;
using sim::Predicted;
using sim::PredictedClass;
using sim::Timeline;

constexpr double kMicros = 1e6;  // of a second

// As profiles have them. A wait lasts since the rank had nothing else to do: `free`, in seconds. Where a queue of its
// own moves the data, `start` is the event of that queue; null: there is none.
ProfileEvent event_of(const PredictedClass& each, const Event& event, double free, const Event* start) {
  const bind::StepInfo& info = info_of(each, event);
  const double begin = info.communication ? std::min(event.begin, free) : event.begin;
  ProfileEvent shown{info.name, info.op, info.communication, info.axes, begin * kMicros, (event.end - begin) * kMicros,
                     0,         0};
  shown.action = event.action;
  shown.cell = info.seat.cell();
  const bind::Cost& cost = each.costs[static_cast<size_t>(enqueued(each, event).action.task)];
  shown.bytes = static_cast<double>(std::max(cost.received, cost.sent));
  if (!info.communication) return shown;
  const double moving = start ? start->moving : event.moving;
  shown.waiting = std::clamp(moving - begin, 0.0, event.end - begin) * kMicros;
  shown.moving_begin = moving * kMicros;
  shown.moving_end = (start ? start->end : event.end) * kMicros;
  return shown;
}

// In waits on the queue that computes; starts are left out.
RankProfile profile_of(const PredictedClass& each, const ClassTimes& times) {
  RankProfile profile;
  profile.compute = times.compute * kMicros;
  profile.overlapped = times.overlapped * kMicros;
  profile.exposed = times.exposed * kMicros;
  profile.idle = times.idle * kMicros;
  if (!times.events.empty()) profile.end = times.events.back().end * kMicros;
  std::map<int, const Event*> transfers;  // of queues that communicate, by their starts' actions
  double free = times.events.empty() ? 0 : times.events.front().begin;
  for (const Event& event : times.events) {
    const bool starts = enqueued(each, event).action.phase == bind::Phase::start;
    if (starts && enqueued(each, event).queue != bind::kComputing) transfers[event.action] = &event;
    if (starts) continue;
    const auto found = transfers.find(info_of(each, event).started);
    profile.events.push_back(event_of(each, event, free, found == transfers.end() ? nullptr : found->second));
    free = event.end;
  }
  return profile;
}

// Means over ranks. A communication takes the time that it would undisturbed.
std::vector<PredictedCollective> collectives_of(const Predicted& predicted, const std::vector<RankProfile>& profiles) {
  std::map<std::pair<std::string, std::vector<std::string>>, PredictedCollective> all;
  double ranks = 0;
  for (const PredictedClass& each : predicted.classes) ranks += static_cast<double>(each.count);
  for (size_t c = 0; c < predicted.classes.size(); ++c) {
    const PredictedClass& each = predicted.classes[c];
    const double share = static_cast<double>(each.count) / ranks;
    for (const Event& event : predicted.timeline.classes[c].events) {
      const bind::StepInfo& info = info_of(each, event);
      if (enqueued(each, event).action.phase != bind::Phase::wait || info.members == 1) continue;
      PredictedCollective& found = all[{info.op, info.axes}];
      found.count += share;
      found.ms += each.steps[static_cast<size_t>(enqueued(each, event).action.task)].seconds * kMillis * share;
    }
    for (const ProfileEvent& event : profiles[c].events)
      if (const auto found = all.find({event.op, event.axes}); event.communication && found != all.end())
        found->second.exposed_ms += (event.duration - event.waiting) * 1e-3 * share;
  }
  std::vector<PredictedCollective> list;
  for (auto& [key, found] : all) {
    found.kind = traits_of(*collective_of_op(key.first)).name;
    found.axes = key.second;
    list.push_back(std::move(found));
  }
  return list;
}

// Back from the event that ended last, along what each waited for.
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
  made.uncertain = predicted.uncertain;
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
  made.bubble = pipeline_bubble(made.profile);
  made.chain = chain_of(predicted);
  made.collectives = collectives_of(predicted, made.profile.ranks);
  made.communications = communications_of(predicted);
  for (const PredictedCommunication& each : made.communications) made.waits += each.waits;
  return made;
}

}  // namespace tessera::forecast
