#include "tessera/schedule/generators.h"

#include <algorithm>
#include <charconv>

namespace tessera::schedule {

const std::vector<Generator>& generators() {
  static const std::vector<Generator> all = {
      {"gpipe", "", "all forward passes, then all backward passes", make_gpipe, 1},
      {"1f1b", "", "forward and backward passes in turn: as many micro-batches are held as stages follow", make_1f1b,
       1},
      {"interleaved", "V", "1f1b with V stages a rank, dealt out in turn: a V-th of the bubble, more messages",
       make_interleaved, 0},
      {"zb-h1", "", "1f1b whose weight gradients fill idle time, in 1f1b's memory", make_zb_h1, 1},
      {"zb-h2", "", "the same with a longer warm-up, in up to twice the memory", make_zb_h2, 1},
      {"zb-v", "", "two stages a rank, placed as a V: nearly no bubble in 1f1b's memory", make_zb_v, 2},
      {"v-half", "", "the same in half of 1f1b's memory", make_v_half, 2},
      {"v-min", "", "the same in about a third of 1f1b's memory", make_v_min, 2},
      {"dualpipe-v", "", "placed as a V; forward and backward passes of two micro-batches overlap", make_dualpipe_v, 2,
       2},
  };
  return all;
}

namespace {

std::string names() {
  std::string text;
  for (const PipelineScheduleInfo& each : pipeline_schedules()) text.append(text.empty() ? "" : ", ").append(each.name);
  return text;
}

int64_t parameter_of(const Generator& generator, std::string_view name, std::string_view given) {
  if (generator.parameter.empty()) {
    if (!given.empty()) fail("pipeline", "'{}': {} takes no number; leave ':{}' out", name, generator.name, given);
    return 0;
  }
  if (given.empty()) return 0;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), number);
  if (error != std::errc() || end != given.data() + given.size() || number < 1 || number > 1024)
    fail("pipeline", "'{}': the number of stages on each rank must be between 1 and 1024, as in {}:2", name,
         generator.name);
  return number;
}

}  // namespace

void fail_unknown(std::string_view name, std::string_view why) {
  fail("pipeline", "'{}' is no schedule, and {}; the schedules are auto, {}", name, why, names());
}

void require_possible(std::string_view name, const PipelineSizes& sizes) {
  constexpr int64_t most = int64_t{1} << 20;
  for (const auto& [number, what] : {std::pair(sizes.ranks, "ranks"), {sizes.micro_batches, "micro-batches"}})
    if (number < 1 || number > most) fail("pipeline", "'{}': {} {}; give between 1 and {}", name, number, what, most);
  if (sizes.stages < 0 || sizes.stages > most)
    fail("pipeline", "'{}': {} stages; give between 1 and {}", name, sizes.stages, most);
}

namespace {

int64_t stages_per_rank(const Generator& generator, std::string_view name, int64_t parameter,
                        const PipelineSizes& sizes) {
  if (sizes.stages % sizes.ranks != 0)
    fail("pipeline", "'{}': {} stages on {} ranks; give a multiple of the ranks", name, sizes.stages, sizes.ranks);
  const int64_t given = sizes.stages / sizes.ranks;
  const int64_t own = generator.stages > 0 ? generator.stages : parameter > 0 ? parameter : given > 0 ? given : 2;
  if (given > 0 && given != own)
    fail("pipeline", "'{}' has {} stages on {} ranks, not {}; leave the number of stages out, or use interleaved:{}",
         name, own * sizes.ranks, sizes.ranks, sizes.stages, given);
  return own;
}

}  // namespace
}  // namespace tessera::schedule

namespace tessera {
inline namespace v1 {

std::vector<PipelineScheduleInfo> pipeline_schedules() {
  std::vector<PipelineScheduleInfo> infos;
  for (const schedule::Generator& each : schedule::generators()) {
    std::string name(each.name);
    if (!each.parameter.empty()) name.append(":").append(each.parameter);
    infos.push_back({name, std::string(each.describes)});
  }
  return infos;
}

bool is_pipeline_schedule(std::string_view text) {
  const std::string_view base = text.substr(0, text.find(':'));
  const auto& all = schedule::generators();
  return text == "auto" || std::any_of(all.begin(), all.end(), [&](const auto& each) { return each.name == base; });
}

PipelineTable make_pipeline(std::string_view name, const PipelineSizes& sizes) {
  using namespace schedule;
  constexpr int64_t most_cells = int64_t{1} << 26;
  require_possible(name, sizes);
  const size_t colon = name.find(':');
  const std::string_view base = name.substr(0, colon);
  const std::string_view given = colon == std::string_view::npos ? "" : name.substr(colon + 1);
  for (const Generator& each : generators()) {
    if (each.name != base) continue;
    const int64_t stages = stages_per_rank(each, name, parameter_of(each, name, given), sizes);
    if (sizes.ranks * stages > most_cells / sizes.micro_batches)
      fail("pipeline", "'{}': {} stages x {} micro-batches are more than {} cells; give fewer", name,
           sizes.ranks * stages, sizes.micro_batches, most_cells);
    return each.make(sizes.ranks, sizes.micro_batches, stages);
  }
  fail_unknown(name, "a table is read from a file");
}

}  // namespace v1
}  // namespace tessera
