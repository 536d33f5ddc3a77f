// The search for the fastest schedule: all that make_pipeline knows, and schedules on a line and on a V that fill idle
// time by the given times, with several limits of what they hold. The fastest is the one with the least bubble, since a
// rank begins its next step when it has ended this one; of several, the one that holds least.
#include <algorithm>

#include "tessera/schedule/generators.h"
#include "tessera/schedule/list_scheduler.h"
#include "tessera/schedule/v_shaped.h"

namespace tessera::schedule {
namespace {

class Search {
 public:
  Search(const PipelineSizes& sizes, const PipelineRankCosts& costs) : sizes_(sizes), costs_(costs) {}

  void add(std::string name, PipelineTable table) {
    PipelineCosts costs =
        even_pipeline_costs(table, costs_.forward, costs_.input_gradient, costs_.weight_gradient, costs_.send);
    costs.kept = costs_.kept;
    PipelineTimes times = time_pipeline(table, costs);
    double held = 0;
    for (const PipelineRankTime& each : times.ranks) held = std::max(held, each.activations);
    least_held_ = least_held_ == 0 ? held : std::min(least_held_, held);
    if (costs_.most_held > 0 && held > costs_.most_held * (1 + 1e-9)) return;
    const double later = best_ ? times.bubble - best_->times.bubble : -1;
    if (later > 1e-9 || (later > -1e-9 && held >= held_by_best_)) return;
    held_by_best_ = held;
    best_ = FoundPipeline{std::move(name), std::move(table), std::move(times)};
  }

  void add_named() {
    for (const Generator& each : generators()) {
      if (sizes_.micro_batches < each.least_rounds * sizes_.ranks) continue;
      if (!each.parameter.empty() && sizes_.stages == 0)
        for (const int64_t stages : {2, 3, 4}) add_made(each, stages);
      else
        add_made(each, each.stages > 0 ? each.stages : std::max<int64_t>(sizes_.stages / sizes_.ranks, 1));
    }
  }

  // Schedules of zero-bubble's form, by the given times (arXiv 2401.10241, section 4).
  void add_filled() {
    const double limit = costs_.most_held > 0 ? costs_.most_held : 2 * static_cast<double>(sizes_.ranks);
    for (const double part : {1.0, 0.9, 0.8})
      for (const double patience : {0.0, 0.25, 0.5, 1.0})
        for (const bool v : {false, true}) {
          const int64_t stages = v ? 2 : 1;
          const double share = 1 / static_cast<double>(stages);
          ListRules rules{costs_.forward * share, costs_.input_gradient * share, costs_.weight_gradient * share,
                          costs_.send};
          rules.kept = costs_.kept;
          rules.patience = patience * rules.weight_gradient;
          rules.oldest_first = true;
          rules.most_held = std::max(1.0, limit * part * static_cast<double>(stages));
          rules.most_of_stage.assign(static_cast<size_t>(stages * sizes_.ranks), sizes_.micro_batches);
          add_listed(v ? "filled V" : "filled line", v ? Placement::v : Placement::loop, stages, rules);
        }
  }

  // As zb-v, v-half and v-min, in as much as is allowed.
  void add_limited() {
    if (sizes_.stages != 0 && sizes_.stages != 2 * sizes_.ranks) return;
    const double most = std::min(2 * costs_.most_held, 4.0 * static_cast<double>(sizes_.ranks));
    if (most >= 2) add("limited V", make_v_shaped(sizes_.ranks, sizes_.micro_batches, static_cast<int64_t>(most)));
  }

  FoundPipeline take() {
    if (!best_ && least_held_ == 0)
      fail("pipeline", "no schedule puts {} stages on {} ranks; give a multiple of the ranks", sizes_.stages,
           sizes_.ranks);
    if (!best_)
      fail("pipeline",
           "no schedule of {} micro-batches on {} ranks holds at most {} activations; the least is {:.3g}: "
           "allow that, or take more and smaller micro-batches",
           sizes_.micro_batches, sizes_.ranks, costs_.most_held, least_held_);
    return std::move(*best_);
  }

 private:
  // `stages` for each rank.
  void add_made(const Generator& generator, int64_t stages) {
    if (sizes_.stages != 0 && sizes_.stages != stages * sizes_.ranks) return;
    std::string name(generator.name);
    if (!generator.parameter.empty()) name += ":" + std::to_string(stages);
    PipelineTable table = make_pipeline(name, {sizes_.ranks, sizes_.micro_batches, 0});
    add(std::move(name), std::move(table));
  }

  void add_listed(const char* name, Placement placement, int64_t stages, const ListRules& rules) {
    if (sizes_.stages != 0 && sizes_.stages != stages * sizes_.ranks) return;
    std::optional<PipelineTable> made =
        list_schedule(empty_table(placement, sizes_.ranks, stages * sizes_.ranks, sizes_.micro_batches), rules);
    if (made) add(name, std::move(*made));
  }

  PipelineSizes sizes_;
  PipelineRankCosts costs_;
  std::optional<FoundPipeline> best_;
  double least_held_ = 0, held_by_best_ = 0;
};

}  // namespace
}  // namespace tessera::schedule

namespace tessera {
inline namespace v1 {

FoundPipeline find_pipeline(const PipelineSizes& sizes, const PipelineRankCosts& costs) {
  schedule::require_possible("auto", sizes);
  schedule::Search search(sizes, costs);
  search.add_named();
  search.add_limited();
  search.add_filled();
  return search.take();
}

}  // namespace v1
}  // namespace tessera
