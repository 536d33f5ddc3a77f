#include "tessera/plan/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

namespace tessera::plan {
namespace {

struct Part {
  double more_ms;  // of the other plan
  std::string what;
};

std::string time_of(double ms) {
  const double size = std::abs(ms);
  return size >= 1000  ? fmt::format("{:.2f} s", size * 1e-3)
         : size >= 0.1 ? fmt::format("{:.2f} ms", size)
                       : fmt::format("{:.1f} µs", size * 1e3);
}

// The kind of communication whose share of the longest chain grew, or shrank, most.
std::string communication_that_differs(const Prediction& best, const Prediction& other) {
  std::map<std::string, double> more;
  for (const ChainPart& part : other.chain)
    if (part.communication) more[part.op] += part.ms;
  for (const ChainPart& part : best.chain)
    if (part.communication) more[part.op] -= part.ms;
  const bool grows = other.exposed_ms > best.exposed_ms;
  std::string op;
  double most = 0;
  for (const auto& [name, ms] : more)
    if (const double size = grows ? ms : -ms; size > most) {
      most = size;
      op = name;
    }
  return op;
}

}  // namespace

std::string difference(const Prediction& best, const Prediction& other) {
  std::string communication = "exposed communication";
  if (const std::string op = communication_that_differs(best, other); !op.empty())
    communication += " (mostly " + op + ")";
  std::vector<Part> parts = {{other.compute_ms - best.compute_ms, "computation"},
                             {other.exposed_ms - best.exposed_ms, communication},
                             {other.idle_ms - best.idle_ms, "waiting for other ranks"}};
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& a, const Part& b) { return std::abs(a.more_ms) > std::abs(b.more_ms); });
  constexpr double kWorthNaming = 0.1;
  std::string text;
  for (const Part& part : parts) {
    if (part.more_ms == 0 || std::abs(part.more_ms) < kWorthNaming * std::abs(parts.front().more_ms)) continue;
    text += (text.empty() ? "" : ", ") + time_of(part.more_ms) + (part.more_ms > 0 ? " more " : " less ") + part.what;
  }
  return text.empty() ? "as fast" : text;
}

std::optional<double> least_factor(const std::function<bool(double)>& holds, double most) {
  if (holds(1)) return 1;
  if (!holds(most)) return std::nullopt;
  constexpr double kWithin = 1.01;
  double no = 1, yes = most;
  while (yes / no > kWithin) {
    const double middle = std::sqrt(no * yes);
    (holds(middle) ? yes : no) = middle;
  }
  return yes;
}

}  // namespace tessera::plan
