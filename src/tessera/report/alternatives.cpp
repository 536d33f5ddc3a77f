#include <fmt/format.h>

#include <algorithm>

#include "tessera/report/page.h"
#include "tessera/report/sections.h"

namespace tessera::report {
namespace {

// What the search did with all candidates.
std::string counts_html(const Json& object) {
  std::string html = fmt::format("<p>{} candidates: {} simulated", number_text(number_at(object, "candidates"), 0),
                                 number_text(number_at(object, "evaluated") - number_at(object, "unfit"), 0));
  for (const auto& [key, words] :
       {std::pair("unfit", "compiled, but too large"), std::pair("too_large", "whose states alone are too large"),
        std::pair("too_slow", "whose bound is no better"), std::pair("refused", "that cannot be made"),
        std::pair("left", "not tried in time")})
    if (const double count = number_at(object, key); count > 0)
      html += fmt::format(", {} {}", number_text(count, 0), words);
  html += ".";
  constexpr double kMostTimes = 1000;  // a bound that is farther away says nothing
  if (const double distance = number_at(object, "distance"); distance > 0 && distance < kMostTimes)
    html += fmt::format(
        " No plan beats {} ms, the products at the peak rate of all devices; the best takes {} times as long.",
        ms_text(number_at(object, "bound_ms"), number_at(object, "bound_ms")), number_text(distance, 2));
  html += "</p>\n";
  std::string left;
  for (const Json& each : list_at(object, "not_searched"))
    if (each.is_string()) left += (left.empty() ? "" : "; ") + each.get<std::string>();
  return html + (left.empty() ? "" : fmt::format("<p>Not searched: {}.</p>\n", escaped(left)));
}

std::string wins_text(const Json& option) {
  std::string text;
  for (const Json& each : list_at(option, "wins"))
    if (each.is_string()) text += (text.empty() ? "" : ", or ") + each.get<std::string>();
  return text;
}

std::string plans_html(const Json& object) {
  const Json& best = list_at(object, "best");
  std::string html = fmt::format("<p>Plans for {} devices of {}, the {} first.</p>\n",
                                 number_text(number_at(object, "devices"), 0), escaped(text_at(object, "machine")),
                                 text_at(object, "objective") == "memory" ? "least memory" : "fastest");
  double most = 0;
  for (const Json& option : best) most = std::max(most, number_at(option, "step_ms"));
  std::vector<std::vector<Cell>> rows;
  for (size_t i = 0; i < best.size(); ++i) {
    const Json& option = best[i];
    const auto ms = [&](const char* key) { return number_cell(ms_text(number_at(option, key), most)); };
    const std::string wins = wins_text(option), decided = text_at(option, "decided");
    const std::string why = i == 0 ? "chosen" : decided + (wins.empty() ? "" : "; the better one " + wins);
    rows.push_back({number_cell(std::to_string(i + 1)),
                    html_cell(fmt::format("<div class=name>{}</div>", escaped(text_at(option, "text")))), ms("step_ms"),
                    ms("compute_ms"), ms("exposed_ms"), ms("idle_ms"),
                    number_cell(amount_text(number_at(option, "peak_bytes"))),
                    html_cell(fmt::format("<div class=why>{}</div>", escaped(why)))});
  }
  html += table_html({"", "plan", "step ms", "compute ms", "exposed ms", "idle ms", "peak memory", "against the first"},
                     rows);
  return html + counts_html(object);
}

}  // namespace

std::string alternatives_section(const Inputs& inputs, const Words& words) {
  std::string html;
  for (const Answer& answer : inputs.answers)
    if (!list_at(answer.object, "best").empty()) html += plans_html(answer.object);
  if (html.empty())
    return missing_html("alternatives", "Alternatives",
                        words("No input compares plans; give what tessera plan prints with `json`, too."));
  return section_html("alternatives", "Alternatives", html);
}

}  // namespace tessera::report
