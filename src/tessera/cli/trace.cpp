#include "tessera/cli/trace.h"

#include <algorithm>

#include "tessera/files.h"

namespace tessera::cli {

void Trace::add(const Profile& profile, double begin) {
  Json ends = Json::array(), counts = Json::array();
  for (const RankProfile& rank : profile.ranks) {
    ends.push_back(rank.end);
    counts.push_back(rank.events.size());
  }
  for (size_t r = 0; r < profile.ranks.size(); ++r)
    for (const ProfileEvent& event : profile.ranks[r].events) {
      Json arguments = {{"op", event.op}, {"run", runs_.size()}, {"action", event.action}};
      if (event.communication) arguments["axes"] = event.axes;
      if (event.communication) arguments["waiting_us"] = event.waiting;
      if (event.complete > 0) arguments["complete_us"] = begin + event.complete;
      if (event.under_way > 0) arguments["under_way_us"] = event.under_way;
      events_.push_back({{"name", event.name},
                         {"cat", event.communication ? "communication" : "compute"},
                         {"ph", "X"},
                         {"pid", 0},
                         {"tid", r},
                         {"ts", begin + event.begin},
                         {"dur", event.duration},
                         {"args", arguments}});
    }
  ranks_ = std::max(ranks_, profile.ranks.size());
  runs_.push_back({{"ts", begin}, {"dur", profile.duration}, {"ends", ends}, {"events", counts}});
}

void Trace::record(const std::string& program, const Json& command) {
  recorded_ = {{"program", Json::parse(program)}, {"command", command}};
}

void Trace::write(const std::string& path) const {
  Json all = Json::array();
  all.push_back({{"name", "process_name"}, {"ph", "M"}, {"pid", 0}, {"args", {{"name", "tessera"}}}});
  for (size_t r = 0; r < ranks_; ++r)
    all.push_back({{"name", "thread_name"},
                   {"ph", "M"},
                   {"pid", 0},
                   {"tid", r},
                   {"args", {{"name", "rank " + std::to_string(r)}}}});
  for (const Json& event : events_) all.push_back(event);
  Json object = {{"displayTimeUnit", "ms"}, {"traceEvents", all}};
  if (!recorded_.empty()) {
    object["tessera"] = recorded_;
    object["tessera"]["runs"] = runs_;
  }
  write_file(path, object.dump());
}

}  // namespace tessera::cli
