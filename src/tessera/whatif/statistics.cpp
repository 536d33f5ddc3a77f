#include "tessera/whatif/statistics.h"

#include <algorithm>

namespace tessera::whatif {

Line line_through(const std::vector<std::pair<double, double>>& points) {
  double w = 0, x = 0, xx = 0, t = 0, xt = 0;  // sums, weighted by 1/t²
  bool alike = true;
  for (const auto& [bytes, seconds] : points) {
    const double weight = 1 / (seconds * seconds);
    w += weight;
    x += weight * bytes;
    xx += weight * bytes * bytes;
    t += weight * seconds;
    xt += weight * bytes * seconds;
    alike = alike && bytes == points.front().first;
  }
  if (points.empty()) return {};
  const Line through_zero{0, xx > 0 ? xt / xx : 0}, flat{t / w, 0};
  if (alike) return xx > 0 ? through_zero : flat;
  const double determinant = w * xx - x * x;
  const Line line{(t * xx - x * xt) / determinant, (w * xt - x * t) / determinant};
  return line.fixed < 0 ? through_zero : line.slope < 0 ? flat : line;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace tessera::whatif
