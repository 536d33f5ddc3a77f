#include "tessera/proof/prove.h"

#include <set>

#include "tessera/proof/layouts.h"
#include "tessera/proof/order.h"

namespace tessera::proof {

Report prove(const runtime::RankPrograms& programs) {
  Report report;
  report.ranks = programs.mesh().size();
  report.models = static_cast<int64_t>(programs.programs.size());
  std::vector<std::vector<Communication>> communications;
  for (const auto& program : programs.programs) {
    auto& own = communications.emplace_back(communications_of(*program));
    if (!programs.placed)
      for (Communication& communication : own) communication.layout.reset();
  }
  auto program_of = [&](int64_t rank) { return programs.program_of.empty() ? 0 : programs.program_of[rank]; };
  for (int64_t rank = 0; rank < report.ranks; ++rank)
    report.communications += static_cast<int64_t>(communications[program_of(rank)].size());
  check_order(programs, communications, report);
  if (!report.good()) return report;
  // Of ranks that run one model, the first and the last: the largest and the smallest shards.
  for (size_t p = 0; p < programs.programs.size(); ++p) {
    std::set<int64_t> ranks;
    for (int64_t rank = 0; rank < report.ranks && ranks.empty(); ++rank)
      if (program_of(rank) == static_cast<int>(p)) ranks.insert(rank);
    for (int64_t rank = report.ranks; rank-- > 0 && ranks.size() == 1;)
      if (program_of(rank) == static_cast<int>(p)) {
        ranks.insert(rank);
        break;
      }
    if (ranks.empty()) continue;
    if (programs.placed) check_layouts(*programs.programs[p], communications[p], *ranks.begin(), report);
    if (programs.placed && report.good()) check_factors(*programs.programs[p], *ranks.begin(), report);
    for (int64_t rank : ranks)
      if (report.good()) check_types(*programs.programs[p], rank, report);
    if (!report.good()) return report;
  }
  return report;
}

}  // namespace tessera::proof
