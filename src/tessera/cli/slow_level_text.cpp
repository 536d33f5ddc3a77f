#include "tessera/cli/slow_level_text.h"

namespace tessera::cli {

std::optional<SlowLevel> slow_level_of(const AskedStep& step, const MachineModel& machine, int64_t devices) {
  if (!step.training) return std::nullopt;
  return slow_level(step.model, step.plan.shapes, machine, devices, step.training->compute);
}

std::string slow_level_text(const SlowLevel& level) {
  std::string held = count_text(level.tokens_per_slice) + (level.counts_tokens ? " token" : " sample");
  if (level.tokens_per_slice != 1) held += "s";
  return "over '" + level.link + "', between slices of " + counted(level.slice, "device") + ": a slice has " + held +
         " and needs " + count_text(level.needed) +
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
