#include "tessera/plan/wins.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <set>

#include "tessera/plan/compare.h"

namespace tessera::plan {
namespace {

std::set<std::string> links_of(const Program& program, const MachineModel& machine) {
  std::set<std::string> names;
  if (program.mesh().size() > 1)
    for (const Topology::Axis& axis : machine.topology(program.mesh()).axes)
      for (const LinkLevel& level : axis.levels)
        if (!level.name.empty()) names.insert(level.name);
  return names;
}

double seconds_with(const Candidates& candidates, const Candidates::Kept& kept, PredictSettings settings,
                    const std::string& link, double factor) {
  if (links_of(kept.program.program(), settings.machine).contains(link)) settings.link_scale[link] = factor;
  return candidates.seconds_with(kept, settings);
}

}  // namespace

std::vector<std::string> wins_of(const Candidates& candidates, const Candidates::Kept& best,
                                 const Candidates::Kept& other, const PredictSettings& settings) {
  constexpr double kMost = 32;
  std::set<std::string> links = links_of(best.program.program(), settings.machine);
  links.merge(links_of(other.program.program(), settings.machine));
  std::vector<std::string> wins;
  for (const std::string& link : links)
    for (const bool faster : {true, false}) {
      const std::optional<double> factor = least_factor(
          [&](double size) {
            const double scale = faster ? size : 1 / size;
            return seconds_with(candidates, other, settings, link, scale) <=
                   seconds_with(candidates, best, settings, link, scale);
          },
          kMost);
      if (factor && *factor > 1)
        wins.push_back(fmt::format("if '{}' were {:.3g} times as {}", link, *factor, faster ? "fast" : "slow"));
    }
  return wins;
}

// Ten simulations of both plans for each link and direction.
double seconds_of_wins(const Candidates& candidates, const Candidates::Kept& best, const PredictSettings& settings) {
  const auto begin = std::chrono::steady_clock::now();
  candidates.seconds_with(best, settings);
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
  return 40 * passed.count() * static_cast<double>(links_of(best.program.program(), settings.machine).size());
}

}  // namespace tessera::plan
