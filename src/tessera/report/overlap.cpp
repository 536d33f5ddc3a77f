#include "tessera/report/overlap.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/report/page.h"
#include "tessera/time.h"

namespace tessera::report {
namespace {

constexpr size_t kRowsShown = 16;

std::string waits_html(const Inputs& inputs) {
  const Json* waits = inputs.find("overlap/waits");
  if (!waits || !waits->is_object()) return "";
  const double all = number_at(*waits, "ms");
  if (!(all > 0)) return "<p>Rank 0 is predicted to wait for no communication.</p>\n";
  std::vector<std::vector<Cell>> rows;
  for (const WaitCause& cause : kWaitCauses)
    if (const double ms = number_at(*waits, cause.key); ms > 0)
      rows.push_back({cause.name, number_cell(ms_text(ms, all)), number_cell(percent_text(ms / all))});
  return fmt::format("<p>Rank 0 is predicted to wait {} ms for communication:</p>\n", ms_text(all, all)) +
         table_html({"because of", "ms", "share"}, rows);
}

std::string main_cause(const Json& waits) {
  const WaitCause* most = std::max_element(
      std::begin(kWaitCauses), std::end(kWaitCauses),
      [&](const WaitCause& a, const WaitCause& b) { return number_at(waits, a.key) < number_at(waits, b.key); });
  return number_at(waits, most->key) > 0 ? most->name : "";
}

std::string behind_text(const Json& row) {
  std::string text;
  for (const Json& each : list_at(row, "behind"))
    if (each.is_string()) text += (text.empty() ? "" : ", ") + each.get<std::string>();
  return text;
}

std::string communications_html(const Inputs& inputs) {
  const Json* all = inputs.find("overlap/communications");
  if (!all || !all->is_array() || all->empty()) return "";
  double most = 0;
  for (const Json& each : *all)
    most = std::max({most, number_at(each, "ms"), number_at(object_at(each, "measured"), "moving_ms")});
  const auto ms = [&](const Json& of, const char* key) {
    return number_cell(of.contains(key) ? ms_text(number_at(of, key), most) : "");
  };
  std::vector<std::vector<Cell>> rows;
  for (const Json& each : *all) {
    const Json &waits = object_at(each, "waits"), &measured = object_at(each, "measured");
    rows.push_back(
        {text_at(each, "kind") + " over " + axes_of(each),
         html_cell("<div class=name>" + wrappable(text_at(each, "tensor")) + "</div>"),
         number_cell(number_text(number_at(each, "count"), 0)), number_cell(amount_text(number_at(each, "bytes"))),
         ms(each, "ms"), number_cell(percent_text(number_at(each, "hidden"))), ms(waits, "ms"), main_cause(waits),
         measured.empty()
             ? number_cell("")
             : number_cell(ms_text(number_at(measured, "late_peer_ms") + number_at(measured, "exposed_ms"), most)),
         html_cell("<div class=name>" + wrappable(behind_text(each)) + "</div>")});
  }
  return "<h3>Communications of rank 0 that are alike</h3>\n" +
         folded_table_html({"communication", "of", "count", "bytes", "predicted ms", "hidden", "waits ms", "mostly for",
                            "measured waits ms", "behind"},
                           rows, kRowsShown, "kinds of communication");
}

std::string rings_html(const Inputs& inputs) {
  const Json* all = inputs.find("overlap/rings");
  if (!all || !all->is_array() || all->empty()) return "";
  std::vector<std::vector<Cell>> rows;
  for (const Json& each : *all) {
    const bool taken = each.is_object() && each.contains("taken") && each["taken"] == true;
    rows.push_back({text_at(each, "collective"), number_cell(amount_text(number_at(each, "bytes"))),
                    taken ? "in a ring" : "whole", text_at(each, "why")});
  }
  return "<h3>Collectives beside products</h3>\n" +
         folded_table_html({"collective", "bytes", "is", "because"}, rows, kRowsShown, "collectives");
}

}  // namespace

std::string overlap_html(const Inputs& inputs) {
  return waits_html(inputs) + communications_html(inputs) + rings_html(inputs);
}

bool has_measured_overlap(const Inputs& inputs) {
  const Json* all = inputs.find("overlap/communications");
  return all && all->is_array() &&
         std::any_of(all->begin(), all->end(), [](const Json& each) { return !object_at(each, "measured").empty(); });
}

}  // namespace tessera::report
