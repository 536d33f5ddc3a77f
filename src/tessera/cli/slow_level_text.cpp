#include "tessera/cli/slow_level_text.h"

namespace tessera::cli {

std::optional<SlowLevel> slow_level_of(const AskedStep& step, const MachineModel& machine, int64_t devices) {
  if (!step.training) return std::nullopt;
  return slow_level(step.model, step.plan.shapes, machine, devices, step.training->compute);
}

std::string slow_level_text(const SlowLevel& level) {
  const std::string unit = level.counts_tokens ? "tokens" : "samples";
  return "over '" + level.link + "', between slices of " + std::to_string(level.slice) + " devices: a slice has " +
         count_text(level.tokens_per_slice) + " " + unit + " and needs " + count_text(level.needed) +
         " (twice FLOP/s over bytes/s) to hide gradients of 32 bits: they are " +
         (level.is_hidden() ? "hidden" : "not hidden") + "; the least batch that hides them is " +
         std::to_string(level.least_batch);
}

Json slow_level_json(const SlowLevel& level) {
  return {{"link", level.link},
          {"slice", level.slice},
          {"per_slice", level.tokens_per_slice},
          {"counts", level.counts_tokens ? "tokens" : "samples"},
          {"intensity", level.intensity},
          {"needed", level.needed},
          {"hidden", level.is_hidden()},
          {"least_batch", level.least_batch}};
}

}  // namespace tessera::cli
