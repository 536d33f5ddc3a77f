#include "tessera/sim/deliveries.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "tessera/cost/kernels.h"
#include "tessera/runtime/output_parts.h"
#include "tessera/sim/transfer.h"

namespace tessera::sim {

std::vector<Delivery> deliveries_of(const runtime::DryRun& run, const Setting& setting, int64_t process_ranks) {
  std::vector<Delivery> deliveries;
  const runtime::RankPrograms& programs = *run.programs;
  const int64_t ranks = programs.mesh().size();
  if (process_ranks == 0 || process_ranks >= ranks) return deliveries;
  std::vector<int> here(static_cast<size_t>(process_ranks));
  std::iota(here.begin(), here.end(), 0);
  const cost::KernelTimes times(setting.machine);
  for (size_t i = 0; i < programs.programs.front()->outputs.size(); ++i)
    for (const runtime::OutputPart& part :
         runtime::received_parts(programs, here, programs.output(i).value->name, run.symbols)) {
      const auto bytes = static_cast<double>(part.bytes());
      const double copy = part.is_one_piece() ? 0 : times.copy(2 * bytes);
      // Else the sender has it dense (RankPlan::own_part).
      const bool packs = setting.machine.device != "cpu";
      deliveries.push_back({part.rank, packs ? copy : 0, message_of(part.rank, bytes, setting), copy});
    }
  return deliveries;
}

void deliver(const std::vector<Delivery>& deliveries, const std::vector<int>& class_of,
             const std::vector<ClassProgram>& classes, Timeline& timeline) {
  if (deliveries.empty()) return;
  struct Rank {
    double free = 0, copies = 0, transfers = 0;
  };
  const auto class_of_rank = [&](int rank) { return static_cast<size_t>(class_of[static_cast<size_t>(rank)]); };
  std::map<int, Rank> ranks;
  const auto of = [&](int rank) -> Rank& {
    return ranks.try_emplace(rank, Rank{timeline.classes[class_of_rank(rank)].ended}).first->second;
  };
  const double before = timeline.seconds;
  for (const Delivery& each : deliveries) {
    Rank &sender = of(each.from), &receiver = of(0);
    const double begin = std::max(sender.free + each.packing, receiver.free);
    sender.free = begin + each.transfer.seconds;
    receiver.free = sender.free + each.unpacking;
    sender.copies += each.packing;
    receiver.copies += each.unpacking;
    sender.transfers += each.transfer.seconds;
    receiver.transfers += each.transfer.seconds;
    timeline.seconds = std::max(timeline.seconds, receiver.free);
  }
  for (ClassTimes& times : timeline.classes) times.idle += timeline.seconds - before;
  for (const auto& [rank, own] : ranks) {
    ClassTimes& times = timeline.classes[class_of_rank(rank)];
    const auto count = static_cast<double>(classes[class_of_rank(rank)].count);
    times.compute += own.copies / count;
    times.exposed += own.transfers / count;
    times.idle -= (own.copies + own.transfers) / count;
  }
}

}  // namespace tessera::sim
