#include "tessera/cli/overlap_report.h"

#include <algorithm>
#include <utility>

#include "tessera/cli/program_tables.h"
#include "tessera/cli/time_options.h"
#include "tessera/inspect.h"

namespace tessera::cli {
namespace {

constexpr size_t kTensorWidth = 18, kBehindWidth = 14;
constexpr size_t kColumns = 120;  // where there is no terminal

// The byte after that many UTF-8 characters.
size_t byte_after(const std::string& text, size_t characters) {
  size_t byte = 0;
  for (; byte < text.size(); ++byte)
    if ((text[byte] & 0xc0) != 0x80 && characters-- == 0) break;
  return byte;
}

// A long name in at most that many characters: "h.*.at…q.bias".
std::string middle_left_out(const std::string& name, size_t most) {
  const size_t width = width_of(name);
  if (width <= most) return name;
  const size_t end = (most - 1) / 2, begin = most - 1 - end;
  return name.substr(0, byte_after(name, begin)) + "…" + name.substr(byte_after(name, width - end));
}

void add(std::optional<double>& sum, double by) {
  sum = sum.value_or(0) + by;
}

Json waits_json(const WaitCauses& waits) {
  Json object = {{"ms", waits.total_ms()}, {"exposed_ms", waits.exposed_ms()}};
  for (const WaitCause& cause : kWaitCauses) object[cause.key] = waits.*cause.ms;
  return object;
}

// The one that takes most; empty: there is none.
std::string main_cause(const WaitCauses& waits) {
  const WaitCause* most =
      std::max_element(std::begin(kWaitCauses), std::end(kWaitCauses),
                       [&](const WaitCause& a, const WaitCause& b) { return waits.*a.ms < waits.*b.ms; });
  return waits.*most->ms > 0 ? most->name : "";
}

std::vector<std::string> longest_first(const std::map<std::string, double>& behind) {
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [name, ms] : behind) sorted.emplace_back(-ms, name);
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::string> names;
  for (auto& [ms, name] : sorted) names.push_back(std::move(name));
  return names;
}

std::string behind_text(const AlikeCommunications& row, bool all) {
  const std::vector<std::string> names = longest_first(row.behind);
  if (names.empty()) return "nothing";
  return (all ? names.front() : middle_left_out(names.front(), kBehindWidth)) + (names.size() > 1 ? " …" : "");
}

std::vector<std::string> header_of(bool is_predicted, bool is_measured) {
  std::vector<std::string> header = {"communications", "of", "bytes"};
  if (is_predicted) header.insert(header.end(), {"takes", "hidden", "waits"});
  if (is_measured) header.push_back(is_predicted ? "measured" : "waits");
  header.insert(header.end(), {is_predicted ? "for" : "hidden", "behind"});
  return header;
}

void print_rows(const Console& console, const OverlapRows& rows, bool is_predicted, bool all) {
  constexpr size_t kFirst = 5;
  const std::vector<AlikeCommunications> sorted = rows.sorted();
  if (sorted.empty()) return;
  Table table(header_of(is_predicted, rows.are_measured()));
  const size_t most = all ? sorted.size() : kFirst;
  for (size_t i = 0; i < sorted.size() && i < most; ++i) {
    const AlikeCommunications& row = sorted[i];
    const std::string count = row.count == 1 ? "" : count_text(row.count) + " × ";
    std::vector<std::string> cells = {count + row.kind + " " + joined(row.axes, ","),
                                      all ? row.tensor : middle_left_out(row.tensor, kTensorWidth),
                                      bytes_text(row.bytes)};
    if (is_predicted)
      cells.insert(cells.end(), {ms_text(row.predicted_ms.value_or(0)), percent(row.hidden()), ms_text(row.wait_ms())});
    if (rows.are_measured()) cells.push_back(row.exposed_ms ? ms_text(*row.late_peer_ms + *row.exposed_ms) : "");
    cells.push_back(is_predicted ? main_cause(row.waits) : percent(row.hidden()));
    cells.push_back(behind_text(row, all));
    table.add(std::move(cells));
  }
  table.print(console, kColumns);
  if (sorted.size() > most)
    console.say(counted(static_cast<int64_t>(sorted.size() - most), "more kind") +
                " of communication; --overlap report shows all");
}

}  // namespace

std::string waits_text(const Prediction& prediction) {
  const WaitCauses& waits = prediction.waits;
  if (waits.total_ms() <= 0) return prediction.communications.empty() ? "" : "rank 0 waits for no communication";
  constexpr double kNothing = 5e-4;
  std::string text;
  for (const WaitCause& cause : kWaitCauses)
    if (const double ms = waits.*cause.ms; ms > kNothing * waits.total_ms())
      text += std::string(text.empty() ? "" : ", ") + cause.name + " " + ms_text(ms);
  return "rank 0 waits " + ms_text(waits.total_ms()) + " of " + ms_text(prediction.step_ms) +
         " for communication: " + text;
}

double AlikeCommunications::wait_ms() const {
  return predicted_ms ? waits.total_ms() : late_peer_ms.value_or(0) + exposed_ms.value_or(0);
}

double AlikeCommunications::hidden() const {
  const double whole = predicted_ms ? *predicted_ms : moving_ms.value_or(0);
  const double exposed = predicted_ms ? waits.exposed_ms() : exposed_ms.value_or(0);
  return whole > 0 ? std::max(0.0, 1 - exposed / whole) : 1;
}

AlikeCommunications& OverlapRows::Rows::row(const std::string& kind, const std::vector<std::string>& axes,
                                            const std::string& tensor) {
  const std::string pattern = without_numbers(tensor);
  AlikeCommunications& found = of[{kind, axes, pattern}];
  found.tensor = found.count == 0 || found.tensor == tensor ? tensor : pattern;
  found.kind = kind;
  found.axes = axes;
  found.count += 1;
  return found;
}

void OverlapRows::predict(const Prediction& prediction) {
  for (const PredictedCommunication& each : prediction.communications) {
    AlikeCommunications& row = predicted_.row(each.kind, each.axes, each.tensor);
    row.bytes += each.bytes;
    add(row.predicted_ms, each.ms);
    row.waits += each.waits;
    for (const OperatorBeside& beside : each.behind)
      row.behind[beside.op + " " + without_numbers(beside.name)] += beside.ms;
  }
}

void OverlapRows::measure(const Profile& profile) {
  runs_ += 1;
  if (profile.ranks.empty()) return;
  const std::vector<ProfileEvent>& events = profile.ranks.front().events;
  for (const ProfileEvent& event : events) {
    if (!event.communication || event.moving_end <= 0 || event.bytes <= 0) continue;
    AlikeCommunications& row = measured_.row(kind_of(event.op), event.axes, event.name);
    row.bytes += event.bytes;
    add(row.late_peer_ms, event.waiting * 1e-3);
    add(row.exposed_ms, (event.duration - event.waiting) * 1e-3);
    add(row.moving_ms, (event.moving_end - event.moving_begin) * 1e-3);
    if (event.under_way <= 0) continue;
    const auto ends_before = [](const ProfileEvent& other, double time) { return other.begin + other.duration < time; };
    for (auto at = std::lower_bound(events.begin(), events.end(), event.moving_begin, ends_before);
         at != events.end() && at->begin < event.begin; ++at)
      if (!at->communication) row.behind[at->op + " " + without_numbers(at->name)] += at->duration * 1e-3;
  }
}

std::vector<AlikeCommunications> OverlapRows::sorted() const {
  std::map<Rows::Key, AlikeCommunications> all = predicted_.of;
  for (const auto& [key, measured] : measured_.of) {
    const auto known = all.find(key);
    if (known == all.end() && !predicted_.of.empty()) continue;  // rank 0 alone, or what a prediction leaves out
    AlikeCommunications& row = known != all.end() ? known->second : all[key] = measured;
    if (known == all.end()) {
      row.count /= runs_;
      row.bytes /= runs_;
      for (auto& [name, ms] : row.behind) ms /= runs_;
    }
    row.late_peer_ms = *measured.late_peer_ms / runs_;
    row.exposed_ms = *measured.exposed_ms / runs_;
    row.moving_ms = *measured.moving_ms / runs_;
  }
  std::vector<AlikeCommunications> rows;
  for (auto& [key, row] : all) rows.push_back(std::move(row));
  std::stable_sort(rows.begin(), rows.end(), [](const AlikeCommunications& a, const AlikeCommunications& b) {
    return std::pair(a.wait_ms(), a.predicted_ms) > std::pair(b.wait_ms(), b.predicted_ms);
  });
  return rows;
}

void print_overlap(const Console& console, bool all, const OverlapRows& rows, const ProgramSummary& summary,
                   const std::optional<Forecast>& forecast) {
  if (!all && !forecast) return;
  if (!forecast)
    console.say(
        "no machine is named (--machine, --cluster): ranks are assumed to be threads, whose transfers move only while "
        "they wait");
  print_rows(console, rows, forecast.has_value(), all);
  if (!all) return;
  Table rings({"beside products", "bytes", "is", "because"});
  for (const RingSummary& each : summary.rings)
    rings.add({each.collective, bytes_text(each.bytes), each.taken ? "in a ring" : "whole", each.why});
  if (!rings.empty()) rings.print(console, kColumns);
}

Json overlap_json(const OverlapRows& rows, const ProgramSummary& summary, const std::optional<Forecast>& forecast) {
  Json communications = Json::array(), rings = Json::array();
  for (const AlikeCommunications& row : rows.sorted()) {
    Json& made = communications.emplace_back(Json{{"kind", row.kind},
                                                  {"axes", row.axes},
                                                  {"tensor", row.tensor},
                                                  {"count", row.count},
                                                  {"bytes", row.bytes},
                                                  {"hidden", row.hidden()}});
    if (row.predicted_ms) {
      made["ms"] = *row.predicted_ms;
      made["waits"] = waits_json(row.waits);
    }
    if (row.exposed_ms)
      made["measured"] = {
          {"exposed_ms", *row.exposed_ms}, {"late_peer_ms", *row.late_peer_ms}, {"moving_ms", *row.moving_ms}};
    made["behind"] = longest_first(row.behind);
  }
  for (const RingSummary& each : summary.rings)
    rings.push_back({{"collective", each.collective},
                     {"count", each.count},
                     {"bytes", each.bytes},
                     {"taken", each.taken},
                     {"why", each.why}});
  Json object = {{"communications", communications}};
  if (forecast) object["waits"] = waits_json(forecast->prediction.waits);
  object["rings"] = rings;
  return object;
}

}  // namespace tessera::cli
