#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

#include "tessera/report/overlap.h"
#include "tessera/report/page.h"
#include "tessera/report/sections.h"

namespace tessera::report {
namespace {

// A kind of collective over some axes, per step of a rank; milliseconds.
struct Row {
  double count = 0, bytes = 0;
  std::optional<double> predicted, predicted_exposed;
  std::optional<double> measured_exposed, measured_moving;
};
using Rows = std::map<std::pair<std::string, std::string>, Row>;  // by kind and axes

// "all_reduce" of "AllReduce"
std::string kind_of(const std::string& op) {
  std::string kind;
  for (const char c : op) {
    const bool upper = std::isupper(static_cast<unsigned char>(c)) != 0;
    if (upper && !kind.empty()) kind += '_';
    kind += upper ? static_cast<char>(std::tolower(static_cast<unsigned char>(c))) : c;
  }
  return kind;
}

Row& row_of(Rows& rows, const Json& each) {
  return rows[{text_at(each, "kind"), axes_of(each)}];
}

void add_answers(const Inputs& inputs, Rows& rows) {
  if (const Json* all = inputs.find("collectives"); all && all->is_array())
    for (const Json& each : *all) {
      Row& row = row_of(rows, each);
      row.count = number_at(each, "count");
      row.bytes = number_at(each, "bytes");
      if (each.contains("ms")) row.measured_exposed = number_at(each, "ms");  // of bench
    }
  if (const Json* all = inputs.find("predicted/collectives"); all && all->is_array())
    for (const Json& each : *all) {
      Row& row = row_of(rows, each);
      if (row.count == 0) row.count = number_at(each, "count");
      if (row.bytes == 0) row.bytes = number_at(each, "bytes");
      row.predicted = number_at(each, "ms");
      row.predicted_exposed = number_at(each, "exposed_ms");
    }
}

// Means over tracks and runs of a measured timeline.
void add_measured(const Timeline& timeline, Rows& rows) {
  const double share = 1e-3 / static_cast<double>(std::max<size_t>(timeline.tracks.size(), 1)) /
                       static_cast<double>(std::max<size_t>(timeline.runs.size(), 1));
  Rows measured;
  for (const Track& track : timeline.tracks)
    for (const Operation& operation : track.operations) {
      if (!operation.communication) continue;
      Row& row = measured[{kind_of(timeline.texts[operation.op]), timeline.texts[operation.axes]}];
      row.count += share * 1e3;
      row.measured_exposed = row.measured_exposed.value_or(0) + (operation.when.length() - operation.waiting) * share;
      row.measured_moving = row.measured_moving.value_or(0) + operation.moving.length() * share;
    }
  for (const auto& [key, found] : measured) {
    Row& row = rows[key];
    if (row.count == 0) row.count = found.count;
    row.measured_exposed = found.measured_exposed;
    row.measured_moving = found.measured_moving;
  }
}

// The share of a transfer's time that nothing waits for.
std::string hidden_text(const std::optional<double>& whole, const std::optional<double>& exposed) {
  if (!whole || !exposed || !(*whole > 0)) return "";
  return percent_text(std::clamp(1 - *exposed / *whole, 0.0, 1.0));
}

}  // namespace

std::string collectives_section(const Inputs& inputs, const Words& words) {
  Rows rows;
  add_answers(inputs, rows);
  for (const Timeline& timeline : inputs.timelines)
    if (timeline.title.starts_with("measured")) add_measured(timeline, rows);
  const bool told = inputs.find("collectives") || inputs.find("predicted/collectives");
  if (rows.empty())
    return told ? section_html("collectives", "Communication", "<p>The ranks do not communicate.</p>\n")
                : missing_html(
                      "collectives", "Communication",
                      words("No input lists collectives; what tessera run, bench, train, shard and simulate print "
                            "with `json` does."));
  double most = 0;
  for (const auto& [key, row] : rows)
    most = std::max({most, row.predicted.value_or(0), row.measured_exposed.value_or(0)});
  const auto ms = [&](const std::optional<double>& value) { return number_cell(value ? ms_text(*value, most) : ""); };
  std::vector<std::vector<Cell>> cells;
  for (const auto& [key, row] : rows)
    cells.push_back({key.first, key.second, number_cell(number_text(row.count, 0)), number_cell(amount_text(row.bytes)),
                     ms(row.predicted), ms(row.predicted_exposed),
                     number_cell(hidden_text(row.predicted, row.predicted_exposed)), ms(row.measured_exposed),
                     number_cell(hidden_text(row.measured_moving, row.measured_exposed))});
  std::string html = table_html({"collective", "over", "count", "received by rank 0", "predicted ms",
                                 "of it exposed ms", "hidden", "measured exposed ms", "hidden, at most"},
                                cells);
  html +=
      "<p class=quiet>For one step; times are means over ranks. Exposed is what a rank waits for once all members "
      "have arrived; hidden is the share of the transfer that runs beside operators.";
  if (!inputs.find("predicted/collectives"))
    html += " " + escaped(words("Predicted times need `machine` or `cluster`."));
  const bool is_measured =
      std::any_of(rows.begin(), rows.end(), [](const auto& row) { return row.second.measured_exposed.has_value(); });
  if (!is_measured && !has_measured_overlap(inputs))
    html += " " + escaped(words("Measured times need tessera bench, or train with `details` or `overlap=report`."));
  return section_html("collectives", "Communication", html + "</p>\n" + overlap_html(inputs));
}

}  // namespace tessera::report
