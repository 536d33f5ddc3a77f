#pragma once

#include <optional>
#include <string>

#include "tessera/cli/step_options.h"
#include "tessera/planner.h"

/// The arithmetic intensity over slow links, for people and as JSON.
namespace tessera::cli {

/// Of a training step; nullopt for a model alone, and where all devices are near each other.
std::optional<SlowLevel> slow_level_of(const AskedStep& step, const MachineModel& machine, int64_t devices);
std::string slow_level_text(const SlowLevel& level);
Json slow_level_json(const SlowLevel& level);

}  // namespace tessera::cli
