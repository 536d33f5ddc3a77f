#include "tessera/whatif/trace.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/io/mapped_file.h"

namespace tessera::whatif {
namespace {

constexpr double kMicro = 1e-6;
constexpr std::string_view kAgain = "record it again with `profile` of bench or train";

Json parsed(std::string_view text, const std::string& source) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    if (error.byte >= text.size() && !text.empty() && text.front() == '{')
      fail("whatif", "{} ends in the middle, after {} bytes: it was cut; {}", source, text.size(), kAgain);
    fail("whatif", "{} is no trace: at byte {} it is not JSON; name a file that `profile` of bench or train wrote",
         source, error.byte);
  }
}

double seconds_of(const Json& event, const char* key) {
  const double micros = event.at(key).get<double>();
  if (!std::isfinite(micros)) throw std::out_of_range(fmt::format("a time '{}' is no number", key));
  return micros * kMicro;
}

double duration_of(const Json& event) {
  const double seconds = seconds_of(event, "dur");
  if (seconds < 0) throw std::out_of_range(fmt::format("a duration of {} us", seconds / kMicro));
  return seconds;
}

// A number of a run or rank, of so many.
size_t number_in(const Json& json, size_t count, std::string_view what) {
  const auto number = json.get<int64_t>();
  if (number < 0 || number >= static_cast<int64_t>(count))
    throw std::out_of_range(fmt::format("an event of {} {}, of {}", what, number, count));
  return static_cast<size_t>(number);
}

// An event must be of an action of its rank's program.
void require_action(const RecordedTrace& trace, const Json& event, size_t rank, int action) {
  const std::vector<bind::StepInfo>& infos = *trace.recording.ranks.at(rank).machine->infos;
  if (action >= 0 && action < static_cast<int>(infos.size()) &&
      infos[static_cast<size_t>(action)].op == event.at("args").at("op").get<std::string>())
    return;
  fail("whatif", "{}: rank {} has an event '{}' of action {}, which its program does not have; {}", trace.source, rank,
       event.at("name").get<std::string>(), action, kAgain);
}

void read_events(const Json& events, RecordedTrace& trace, const std::vector<double>& begins) {
  for (const Json& event : events) {
    if (event.value("ph", "") != "X") continue;
    const Json& args = event.at("args");
    const size_t run = number_in(args.at("run"), trace.runs.size(), "run");
    const size_t rank = number_in(event.at("tid"), trace.recording.ranks.size(), "rank");
    RecordedEvent read;
    args.at("action").get_to(read.action);
    require_action(trace, event, rank, read.action);
    read.begin = seconds_of(event, "ts") - begins.at(run);
    read.end = read.begin + duration_of(event);
    if (args.contains("moving_us")) read.complete = args.at("moving_us").at(0).get<double>() * kMicro - begins.at(run);
    trace.runs[run].ranks[rank].events.push_back(read);
  }
  for (RecordedRun& run : trace.runs)
    for (RecordedRun::Rank& rank : run.ranks)
      std::stable_sort(rank.events.begin(), rank.events.end(),
                       [](const RecordedEvent& a, const RecordedEvent& b) { return a.begin < b.begin; });
}

void read_runs(const Json& json, RecordedTrace& trace) {
  const Json& runs = json.at("tessera").at("runs");
  std::vector<double> begins;
  for (const Json& each : runs) {
    begins.push_back(seconds_of(each, "ts"));
    RecordedRun& run = trace.runs.emplace_back();
    run.seconds = duration_of(each);
    if (run.seconds == 0) throw std::out_of_range("a run of no duration");
    run.ranks.resize(trace.recording.ranks.size());
    for (size_t r = 0; r < run.ranks.size(); ++r) run.ranks[r].end = each.at("ends").at(r).get<double>() * kMicro;
  }
  if (runs.empty()) throw std::out_of_range("no runs");
  read_events(json.at("traceEvents"), trace, begins);
  for (size_t n = 0; n < trace.runs.size(); ++n)
    for (size_t r = 0; r < trace.runs[n].ranks.size(); ++r)
      if (const auto found = trace.runs[n].ranks[r].events.size(), expected = runs[n].at("events").at(r).get<size_t>();
          found != expected)
        fail("whatif", "{}: run {} of rank {} has {} events, but {} were recorded: {}; {}", trace.source, n, r, found,
             expected, found < expected ? "a part of it was cut out" : "others were added", kAgain);
}

}  // namespace

size_t RecordedTrace::median_run() const {
  std::vector<size_t> order(runs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return runs[a].seconds < runs[b].seconds; });
  return order[order.size() / 2];
}

RecordedTrace read_trace(const std::filesystem::path& path) {
  RecordedTrace trace;
  trace.source = path.string();
  const auto file = MappedFile::open(path.string(), "whatif");
  const Json json = parsed(file->view(), trace.source);
  if (!json.is_object() || !json.contains("traceEvents"))
    fail("whatif", "{} is no trace: it has no 'traceEvents'; name a file that `profile` of bench or train wrote",
         trace.source);
  if (!json.contains("tessera") || !json["tessera"].is_object())
    fail(
        "whatif",
        "{} is a trace, but does not say which program ran: another tool wrote it, or `trace` of simulate, or an older "
        "tessera; {}",
        trace.source, kAgain);
  trace.recording = from_json(json["tessera"].value("program", Json::object()), trace.source);
  trace.command = json["tessera"].value("command", Json::object());
  try {
    read_runs(json, trace);
  } catch (const Json::exception& error) {
    fail("whatif", "{}: its events are damaged ({}); {}", trace.source, error.what(), kAgain);
  } catch (const std::out_of_range& error) {
    fail("whatif", "{}: its events are damaged ({}); {}", trace.source, error.what(), kAgain);
  }
  return trace;
}

}  // namespace tessera::whatif
