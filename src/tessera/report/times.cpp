#include <fmt/format.h>

#include <algorithm>

#include "tessera/report/page.h"
#include "tessera/report/sections.h"

namespace tessera::report {
namespace {

constexpr size_t kRows = 16;

double largest(const Json& list, const char* key) {
  double found = 0;
  for (const Json& each : list) found = std::max(found, number_at(each, key));
  return found;
}

std::string ranks_text(const Json& each) {
  const auto rank = static_cast<int64_t>(number_at(each, "rank")),
             count = static_cast<int64_t>(number_at(each, "count", 1));
  return count > 1 ? fmt::format("{} like rank {}", count, rank) : fmt::format("rank {}", rank);
}

std::string predicted_html(const Json& predicted) {
  const Json& classes = list_at(predicted, "classes");
  const double step = number_at(predicted, "step_ms");
  const auto ms = [&](const Json& each, const char* key) { return number_cell(ms_text(number_at(each, key), step)); };
  std::vector<std::vector<Cell>> rows;
  for (const Json& each : classes)
    rows.push_back({ranks_text(each), ms(each, "compute_ms"), ms(each, "overlapped_ms"), ms(each, "exposed_ms"),
                    ms(each, "idle_ms"), number_cell(number_text(number_at(each, "flops") * 1e-9, 2)),
                    number_cell(amount_text(number_at(each, "received_bytes")))});
  std::string html = fmt::format("<h3>Predicted for {}: {} ms a step</h3>\n", escaped(text_at(predicted, "machine")),
                                 ms_text(step, step));
  html += folded_table_html({"ranks", "compute ms", "beside comm. ms", "exposed ms", "idle ms", "GFLOP", "received"},
                            rows, kRows, "classes of ranks");
  html += fmt::format(
      "<p>No order of the same operators beats {} ms: computation takes {} ms, the busiest link {} ms, the longest "
      "chain "
      "of dependent operators {} ms. {} of the operators' time is computed by formula, not measured on the "
      "machine.</p>\n",
      ms_text(number_at(predicted, "bound_ms"), step), ms_text(number_at(predicted, "computation_ms"), step),
      ms_text(number_at(predicted, "link_ms"), step), ms_text(number_at(predicted, "dependences_ms"), step),
      percent_text(number_at(predicted, "extrapolated")));
  return html;
}

std::string chain_html(const Json& predicted) {
  const Json& chain = list_at(predicted, "chain");
  if (chain.empty()) return "";
  const double step = number_at(predicted, "step_ms"), most = largest(chain, "ms");
  std::vector<std::vector<Cell>> rows;
  for (const Json& part : chain)
    rows.push_back({text_at(part, "op"), number_cell(number_text(number_at(part, "count"), 0)),
                    number_cell(ms_text(number_at(part, "ms"), most)),
                    number_cell(percent_text(step > 0 ? number_at(part, "ms") / step : 0))});
  return "<h3>What the step waited for, one after the other</h3>\n" +
         folded_table_html({"operator", "count", "ms", "share of the step"}, rows, kRows, "operators");
}

std::string measured_html(const Json& ranks) {
  std::vector<std::vector<Cell>> rows;
  const double most = std::max(largest(ranks, "compute_ms"), largest(ranks, "exposed_comm_ms"));
  const auto ms = [&](const Json& each, const char* key) { return number_cell(ms_text(number_at(each, key), most)); };
  for (const Json& each : ranks)
    if (each.contains("compute_ms"))
      rows.push_back({ranks_text(each), ms(each, "compute_ms"), ms(each, "overlapped_ms"), ms(each, "exposed_comm_ms"),
                      ms(each, "idle_ms"), number_cell(amount_text(number_at(each, "peak_bytes")))});
  if (rows.empty()) return "";
  return "<h3>Measured, a run</h3>\n" +
         folded_table_html({"ranks", "compute ms", "beside comm. ms", "exposed ms", "idle ms", "peak memory"}, rows,
                           kRows, "ranks");
}

// Of bench: operators by their type, predicted and measured.
std::string operators_html(const Json& operators) {
  if (operators.empty()) return "";
  const double most = std::max(largest(operators, "measured_ms"), largest(operators, "predicted_ms"));
  std::vector<std::vector<Cell>> rows;
  for (const Json& each : operators) {
    const double predicted = number_at(each, "predicted_ms"), measured = number_at(each, "measured_ms");
    rows.push_back({text_at(each, "op"), number_cell(ms_text(predicted, most)), number_cell(ms_text(measured, most)),
                    number_cell(ms_text(predicted - measured, most))});
  }
  return "<h3>Operators: predicted against measured</h3>\n" +
         folded_table_html({"operator", "predicted ms", "measured ms", "difference ms"}, rows, kRows, "operators");
}

}  // namespace

std::string times_section(const Inputs& inputs, const Words& words) {
  std::string html;
  const Json* predicted = inputs.find("predicted");
  if (predicted && predicted->is_object()) html += predicted_html(*predicted);
  if (const Json* ranks = inputs.find("ranks"); ranks && ranks->is_array()) html += measured_html(*ranks);
  if (predicted && predicted->is_object()) html += operators_html(list_at(*predicted, "operators"));
  if (predicted && predicted->is_object()) html += chain_html(*predicted);
  if (html.empty())
    return missing_html(
        "times", "Where the time goes",
        words("No input has times. `machine` or `cluster` adds predicted ones to what tessera run, bench, "
              "train, shard and simulate print with `json`; bench also measures them."));
  return section_html("times", "Where the time goes", html);
}

}  // namespace tessera::report
