#include "tessera/cli/slow_level_text.h"

namespace tessera::cli {

std::optional<SlowLevel> slow_level_of(const AskedStep& step, const MachineModel& machine, int64_t devices) {
  if (!step.training) return std::nullopt;
  return slow_level(step.model, step.plan.shapes, machine, devices, step.training->compute);
}

std::string slow_level_text(const SlowLevel& level) {
  const std::string unit = level.counts_tokens ? "tokens" : "samples";
  return "over '" + level.link + "', between slices of " + std::to_string(level.slice) +
         " devices: " + count_text(level.tokens_per_slice) + " " + unit + " per slice, and " +
         count_text(level.intensity) + " FLOP/s over bytes/s; data parallelism needs twice as many " + unit +
         " to hide gradients of 32 bits, " +
         (level.is_hidden() ? "so that they are hidden" : "so that they are not hidden") + ": the least batch is " +
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
