#pragma once

#include "tessera/cli/console.h"
#include "tessera/planner.h"

/// What a search for a plan found, for people and as JSON.
namespace tessera::cli {

void print_planner_report(const Console& console, const PlannerReport& report, const PlannerSettings& settings);
/// {"plan": {…}, "best": [{…}, …], "bound_ms": …, "candidates": …, …}
Json planner_json(const PlannerReport& report, const PlannerSettings& settings);

}  // namespace tessera::cli
