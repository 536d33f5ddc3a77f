#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/report/axis.h"
#include "tessera/report/page.h"
#include "tessera/report/sections.h"

namespace tessera::report {
namespace {

constexpr int kChartHeight = 220, kMostColumns = 1200, kTitles = 150;

struct MemoryClass {
  const char* name;
  const char* words;
  std::vector<double> MemoryPlan::*bytes;
};
// From the bottom of the chart to its top.
constexpr MemoryClass kClasses[] = {
    {"states", "parameters and other states", &MemoryPlan::states},
    {"activations", "activations", &MemoryPlan::activations},
    {"gradients", "gradients and other results", &MemoryPlan::gradients},
    {"buffers", "inputs, scratch, packed forms and other buffers", &MemoryPlan::buffers}};

double total_at(const MemoryPlan& plan, size_t operation) {
  double total = 0;
  for (const MemoryClass& each : kClasses) total += (plan.*each.bytes)[operation];
  return total;
}

size_t largest_between(const MemoryPlan& plan, size_t begin, size_t end) {
  size_t found = begin;
  for (size_t i = begin; i < end; ++i)
    if (total_at(plan, i) > total_at(plan, found)) found = i;
  return found;
}

// One operation for each of `count` equal ranges: the one that needs most.
std::vector<size_t> sampled(const MemoryPlan& plan, size_t count) {
  const size_t all = plan.states.size();
  count = std::min(count, all);
  std::vector<size_t> chosen;
  for (size_t c = 0; c < count; ++c) chosen.push_back(largest_between(plan, c * all / count, (c + 1) * all / count));
  return chosen;
}

std::string title_of(const MemoryPlan& plan, size_t operation) {
  std::string title = plan.operations[operation] + ": " + amount_text(total_at(plan, operation));
  for (const MemoryClass& each : kClasses)
    title += fmt::format("\n{} {}", each.words, amount_text((plan.*each.bytes)[operation]));
  return title;
}

std::string chart_svg(const MemoryPlan& plan, double top) {
  const std::vector<size_t> columns = sampled(plan, kMostColumns);
  const auto height_of = [&](double bytes) { return kChartHeight * (1 - bytes / top); };
  std::string svg =
      fmt::format("<svg viewBox=\"0 0 {} {}\" preserveAspectRatio=none role=img>", columns.size(), kChartHeight);
  std::vector<double> below(columns.size(), 0);
  for (const MemoryClass& each : kClasses) {
    std::string over, back;  // the upper edge from left to right, and the lower one back
    double last = -1;
    std::vector<double> lower = below;
    for (size_t c = 0; c < columns.size(); ++c) {
      below[c] += (plan.*each.bytes)[columns[c]];
      const double y = std::round(height_of(below[c]) * 10) / 10;
      if (y != last)
        over += fmt::format("{}{} {}H{}", c == 0 ? "M" : "V", c == 0 ? "0" : "", y, c + 1);
      else
        over += fmt::format("H{}", c + 1);
      last = y;
    }
    for (size_t c = columns.size(); c-- > 0;) back += fmt::format("V{:.1f}H{}", height_of(lower[c]), c);
    svg += fmt::format("<path class={} d=\"{}{}z\"/>", each.name, over, back);
  }
  const size_t titles = std::min<size_t>(kTitles, columns.size());
  for (size_t t = 0; t < titles; ++t) {
    const size_t begin = t * columns.size() / titles, end = (t + 1) * columns.size() / titles;
    size_t shown = columns[begin];
    for (size_t c = begin; c < end; ++c)
      if (total_at(plan, columns[c]) > total_at(plan, shown)) shown = columns[c];
    svg += fmt::format("<rect class=tip x={} width={} height={} ><title>{}</title></rect>", begin, end - begin,
                       kChartHeight, escaped(title_of(plan, shown)));
  }
  return svg + "</svg>";
}

// Bytes that are round in the unit that the largest has.
std::string scale_html(double top) {
  std::string html = "<div class=scale>";
  constexpr int kSteps = 4;
  for (int i = kSteps; i >= 0; --i) html += fmt::format("<span>{}</span>", escaped(amount_text(top * i / kSteps)));
  return html + "</div>";
}

std::string chart_html(const MemoryPlan& plan) {
  const size_t peak = largest_between(plan, 0, plan.states.size());
  const double most = total_at(plan, peak);
  std::vector<std::vector<Cell>> rows;
  for (const MemoryClass& each : kClasses) {
    const double bytes = (plan.*each.bytes)[peak];
    rows.push_back(
        {each.words, number_cell(amount_text(bytes)), number_cell(percent_text(most > 0 ? bytes / most : 0))});
  }
  const auto count = static_cast<double>(plan.states.size());
  return fmt::format(
             "<h3>Rank {}</h3>\n<p>At its peak, in operation {} of {}, {}, it holds {}.</p>\n<div class=chart>{}<div "
             "class=plot>{}</div>{}</div>\n<p class=quiet>The operations of a step, in their order.</p>\n",
             plan.rank, peak + 1, plan.states.size(), escaped(plan.operations[peak]), escaped(amount_text(most)),
             scale_html(most), chart_svg(plan, std::max(most, 1.0)), axis_html(ticks(count, 6), count, "")) +
         "<details><summary>At the peak, by class</summary>\n" + table_html({"class", "bytes", "share"}, rows) +
         "</details>\n";
}

}  // namespace

std::string memory_section(const Inputs& inputs, const Words& words) {
  if (inputs.memory.empty())
    return missing_html(
        "memory", "Memory over time",
        words("No input has memory by operation. tessera simulate, shard, run, bench and train print it "
              "with `json` and `details`; `memory_plan` of train writes it as a trace."));
  std::vector<std::pair<std::string, std::string>> entries;
  for (const MemoryClass& each : kClasses) entries.emplace_back(each.name, each.words);
  std::string html = legend_html(entries);
  for (const MemoryPlan& plan : inputs.memory) html += chart_html(plan);
  return section_html("memory", "Memory over time", html);
}

}  // namespace tessera::report
