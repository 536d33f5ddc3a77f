#include "tessera/cli/trace.h"

#include <algorithm>

#include "tessera/files.h"

namespace tessera::cli {

Trace Trace::predicted(const Prediction& prediction, const std::string& machine, int process) {
  Trace trace("predicted for " + machine, process);
  for (const PredictedRanks& each : prediction.classes)
    trace.tracks_.push_back(each.count == 1 ? "rank " + std::to_string(each.rank)
                                            : std::to_string(each.count) + " like rank " + std::to_string(each.rank));
  trace.add(prediction.profile, 0);
  return trace;
}

void Trace::add(const Profile& profile, double begin) {
  Json ends = Json::array(), counts = Json::array();
  for (const RankProfile& rank : profile.ranks) {
    ends.push_back(rank.end);
    counts.push_back(rank.events.size());
  }
  for (size_t r = tracks_.size(); r < profile.ranks.size(); ++r) tracks_.push_back("rank " + std::to_string(r));
  events_.push_back(
      {{"name", "run"}, {"cat", "run"}, {"ph", "i"}, {"s", "p"}, {"pid", process_}, {"tid", 0}, {"ts", begin}});
  for (size_t r = 0; r < profile.ranks.size(); ++r)
    for (const ProfileEvent& event : profile.ranks[r].events) {
      Json arguments = {{"op", event.op}, {"run", runs_.size()}, {"action", event.action}};
      if (event.communication) arguments["axes"] = event.axes;
      if (!event.cell.empty()) arguments["cell"] = event.cell;
      if (event.communication) arguments["waiting_us"] = event.waiting;
      if (event.under_way > 0) arguments["under_way_us"] = event.under_way;
      if (event.moving_end > 0) arguments["moving_us"] = {begin + event.moving_begin, begin + event.moving_end};
      events_.push_back({{"name", event.name},
                         {"cat", event.communication ? "communication" : "compute"},
                         {"ph", "X"},
                         {"pid", process_},
                         {"tid", r},
                         {"ts", begin + event.begin},
                         {"dur", event.duration},
                         {"args", arguments}});
    }
  runs_.push_back({{"ts", begin}, {"dur", profile.duration}, {"ends", ends}, {"events", counts}});
}

void Trace::record(const std::string& program, const Json& command) {
  recorded_ = {{"program", Json::parse(program)}, {"command", command}};
}

Json Trace::events() const {
  Json all = Json::array();
  all.push_back({{"name", "process_name"}, {"ph", "M"}, {"pid", process_}, {"args", {{"name", title_}}}});
  for (size_t r = 0; r < tracks_.size(); ++r)
    all.push_back(
        {{"name", "thread_name"}, {"ph", "M"}, {"pid", process_}, {"tid", r}, {"args", {{"name", tracks_[r]}}}});
  for (const Json& event : events_) all.push_back(event);
  return all;
}

void Trace::write(const std::string& path) const {
  Json object = {{"displayTimeUnit", "ms"}, {"traceEvents", events()}};
  if (!recorded_.empty()) {
    object["tessera"] = recorded_;
    object["tessera"]["runs"] = runs_;
  }
  write_file(path, object.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace tessera::cli
