#include "tessera/schedule/table.h"

#include <algorithm>

namespace tessera::schedule {

const WorkName& name_of(Work work) {
  const auto found =
      std::find_if(kWorkNames.begin(), kWorkNames.end(), [&](const WorkName& each) { return each.work == work; });
  check(found != kWorkNames.end(), "an action has a name");
  return *found;
}

std::string text_of(const Action& action) {
  if (action.work == Work::none) return "";
  const WorkName& name = name_of(action.work);
  std::string text = std::to_string(action.stage).append(name.name);
  if (action.micro_batch >= 0) text += std::to_string(action.micro_batch);
  return text;
}

std::vector<int64_t> placed(Placement placement, int64_t ranks, int64_t stages) {
  std::vector<int64_t> rank_of(static_cast<size_t>(stages));
  for (int64_t stage = 0; stage < stages; ++stage) {
    const int64_t place = stage % ranks;
    const bool back = placement == Placement::v && stage / ranks % 2 == 1;
    rank_of[static_cast<size_t>(stage)] = back ? ranks - 1 - place : place;
  }
  return rank_of;
}

PipelineTable empty_table(Placement placement, int64_t ranks, int64_t stages, int64_t micro_batches) {
  PipelineTable table;
  table.stages = stages;
  table.micro_batches = micro_batches;
  table.rank_of = placed(placement, ranks, stages);
  table.ranks.resize(static_cast<size_t>(ranks));
  return table;
}

PipelineTable forward_table(std::vector<int64_t> rank_of, int64_t ranks, int64_t micro_batches) {
  PipelineTable table;
  table.stages = std::ssize(rank_of);
  table.micro_batches = micro_batches;
  table.rank_of = std::move(rank_of);
  table.ranks.resize(static_cast<size_t>(ranks));
  for (int64_t time = 0; time < table.stages + micro_batches - 1; ++time)
    for (int64_t stage = std::max<int64_t>(0, time - micro_batches + 1); stage <= std::min(time, table.stages - 1);
         ++stage)
      table.ranks[static_cast<size_t>(table.rank_of[static_cast<size_t>(stage)])].push_back(
          cell(Work::forward, stage, time - stage));
  return table;
}

}  // namespace tessera::schedule

namespace tessera {
inline namespace v1 {

std::string PipelineCell::str() const {
  if (!overlapped()) return schedule::text_of(first);
  return "(" + schedule::text_of(first) + ";" + schedule::text_of(second) + ")OVERLAP_F_B";
}

std::vector<int64_t> PipelineTable::stages_of(int64_t rank) const {
  std::vector<int64_t> found;
  for (size_t stage = 0; stage < rank_of.size(); ++stage)
    if (rank_of[stage] == rank) found.push_back(static_cast<int64_t>(stage));
  return found;
}

}  // namespace v1
}  // namespace tessera
