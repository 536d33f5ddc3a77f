#include "tessera/report/axis.h"

#include <fmt/format.h>

#include <cmath>

#include "tessera/report/page.h"

namespace tessera::report {

std::vector<double> ticks(double end, int count) {
  if (!(end > 0) || !std::isfinite(end)) return {0};
  const double rough = end / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = power;
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    step = factor * power;
    if (step >= rough) break;
  }
  std::vector<double> values;
  for (int i = 0; i * step <= end * (1 + 1e-9); ++i) values.push_back(i * step);
  return values;
}

std::string axis_html(const std::vector<double>& values, double end, const std::string& unit) {
  std::string html = "<div class=axis>";
  constexpr double kNearEnd = 96;  // percent from which a text goes to the left of its place
  for (size_t i = 0; i < values.size(); ++i) {
    const double place = end > 0 ? 100 * values[i] / end : 0;
    html +=
        fmt::format("<span{} style=\"left:{:.2f}%\">{}{}</span>", i > 0 && place > kNearEnd ? " class=end" : "", place,
                    escaped(fmt::format("{:g}", values[i])), i == 0 && !unit.empty() ? " " + escaped(unit) : "");
  }
  return html + "</div>";
}

}  // namespace tessera::report
