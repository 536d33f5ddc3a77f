// Traces in Chrome's form: cli/trace.h and cli/memory_plan.h write them.
#include <algorithm>
#include <map>

#include "tessera/report/inputs.h"

namespace tessera::report {
namespace {

// The texts of a timeline, each once.
class Texts {
 public:
  explicit Texts(std::vector<std::string>& all) : all_(all) {}
  size_t operator()(std::string text) {
    const auto [found, fresh] = known_.try_emplace(std::move(text), all_.size());
    if (fresh) all_.push_back(found->first);
    return found->second;
  }

 private:
  std::vector<std::string>& all_;
  std::map<std::string, size_t> known_;
};

struct Process {
  std::string title;
  std::map<int64_t, std::string> names;  // of tracks
  std::map<int64_t, std::vector<const Json*>> operations;
  std::vector<const Json*> counters, steps;  // of a memory plan
  std::vector<double> runs;
};

int64_t integer_at(const Json& event, const char* key) {
  return static_cast<int64_t>(number_at(event, key));
}

std::map<int64_t, Process> by_process(const Json& events) {
  std::map<int64_t, Process> all;
  const auto arguments = [](const Json& event) { return event.contains("args") ? event["args"] : Json::object(); };
  for (const Json& event : events) {
    const std::string phase = text_at(event, "ph"), category = text_at(event, "cat"), name = text_at(event, "name");
    Process& process = all[integer_at(event, "pid")];
    if (phase == "M" && name == "process_name") process.title = text_at(arguments(event), "name");
    if (phase == "M" && name == "thread_name")
      process.names[integer_at(event, "tid")] = text_at(arguments(event), "name");
    if (phase == "C" && name == "bytes") process.counters.push_back(&event);
    if (phase == "i" && category == "run") process.runs.push_back(number_at(event, "ts"));
    if (phase != "X") continue;
    if (category == "compute" || category == "communication")
      process.operations[integer_at(event, "tid")].push_back(&event);
    else if (category.empty())
      process.steps.push_back(&event);
  }
  return all;
}

Operation operation_of(const Json& event, Texts& texts) {
  const auto found = event.find("args");
  const Json arguments = found == event.end() ? Json::object() : *found;
  Operation made;
  const double begin = number_at(event, "ts");
  made.when = {begin, begin + number_at(event, "dur")};
  made.communication = text_at(event, "cat") == "communication";
  made.name = texts(text_at(event, "name"));
  made.op = texts(text_at(arguments, "op"));
  std::string axes;
  for (const Json& axis : list_at(arguments, "axes"))
    if (axis.is_string()) axes += (axes.empty() ? "" : ",") + axis.get<std::string>();
  made.axes = texts(axes);
  if (!made.communication) return made;
  made.waiting = std::clamp(number_at(arguments, "waiting_us"), 0.0, made.when.length());
  made.moving = {made.when.begin + made.waiting, made.when.end};
  if (const Json& moving = list_at(arguments, "moving_us");
      moving.size() == 2 && moving[0].is_number() && moving[1].is_number())
    made.moving = {moving[0].get<double>(), moving[1].get<double>()};
  return made;
}

Timeline timeline_of(const Process& process, const std::string& file) {
  Timeline timeline;
  timeline.title = process.title == "tessera" || process.title.empty() ? "timeline" : process.title;
  timeline.file = file;
  timeline.runs = process.runs;
  Texts texts(timeline.texts);
  for (const auto& [tid, events] : process.operations) {
    Track& track = timeline.tracks.emplace_back();
    const auto name = process.names.find(tid);
    track.name = name == process.names.end() ? "rank " + std::to_string(tid) : name->second;
    for (const Json* event : events) {
      const Operation& made = track.operations.emplace_back(operation_of(*event, texts));
      timeline.end = std::max({timeline.end, made.when.end, made.moving.end});
    }
    std::stable_sort(track.operations.begin(), track.operations.end(),
                     [](const Operation& a, const Operation& b) { return a.when.begin < b.when.begin; });
  }
  return timeline;
}

MemoryPlan memory_of(int64_t rank, const Process& process, const std::string& file) {
  MemoryPlan plan{file, rank, {}, {}, {}, {}, {}};
  for (const Json* event : process.counters) {
    const auto found = event->find("args");
    const Json bytes = found == event->end() ? Json::object() : *found;
    plan.states.push_back(number_at(bytes, "states"));
    plan.activations.push_back(number_at(bytes, "activations"));
    plan.gradients.push_back(number_at(bytes, "gradients"));
    plan.buffers.push_back(number_at(bytes, "buffers"));
  }
  for (const Json* step : process.steps) plan.operations.push_back(text_at(*step, "name"));
  plan.operations.resize(plan.states.size());
  return plan;
}

}  // namespace

bool read_trace(const Json& events, const std::string& file, Inputs& inputs) {
  bool any = false;
  for (const auto& [pid, process] : by_process(events)) {
    if (!process.operations.empty()) inputs.timelines.push_back(timeline_of(process, file));
    if (!process.counters.empty()) inputs.memory.push_back(memory_of(pid, process, file));
    any = any || !process.operations.empty() || !process.counters.empty();
  }
  return any;
}

}  // namespace tessera::report
