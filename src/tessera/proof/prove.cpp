#include "tessera/proof/prove.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/dialect/buckets.h"
#include "tessera/proof/layouts.h"
#include "tessera/proof/order.h"
#include "tessera/proof/replicas.h"
#include "tessera/spmd/partition/specialize.h"

namespace tessera::proof {
namespace {

// The ranks that run a program, grouped by the place of their values.
std::vector<std::vector<int>> ranks_by_place(const runtime::RankPrograms& programs, int program) {
  const Mesh& mesh = programs.mesh();
  const std::vector<AxisRef> axes = spmd::placed_axes(*programs.programs[program]);
  std::map<std::vector<int64_t>, std::vector<int>> by_place;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    if (!programs.program_of.empty() && programs.program_of[rank] != program) continue;
    std::vector<int64_t> place;
    for (const AxisRef& axis : axes) place.push_back(digit_along(axis, mesh, mesh.coordinates(rank)));
    by_place[std::move(place)].push_back(rank);
  }
  std::vector<std::vector<int>> all;
  for (auto& [place, ranks] : by_place) all.push_back(std::move(ranks));
  return all;
}

// If ranks run different programs, adds which ranks run the wrong one.
void say_whose(Report& report, const runtime::RankPrograms& programs, const std::vector<int>& ranks) {
  if (report.good() || programs.programs.size() == 1) return;
  const int first = ranks.front(), last = ranks.back();
  const auto count = static_cast<int>(ranks.size());
  std::string& message = report.findings.back().message;
  if (count == 1)
    message += fmt::format("; on rank {}", first);
  else if (last - first == count - 1)
    message += fmt::format("; on ranks {} to {}", first, last);
  else
    message += fmt::format("; on {}, of which {} is the first", counted(count, "rank"), first);
}

// The first rank that runs a program.
int first_rank_of(const runtime::RankPrograms& programs, size_t program) {
  const std::vector<int>& of_ranks = programs.program_of;
  return static_cast<int>(std::find(of_ranks.begin(), of_ranks.end(), static_cast<int>(program)) - of_ranks.begin());
}

// All communications, by program. Nodes that cannot be read, and buckets that cannot start as one, become findings.
std::vector<std::vector<Communication>> all_communications(const runtime::RankPrograms& programs, Report& report) {
  std::vector<std::vector<Communication>> all;
  for (size_t program = 0; program < programs.programs.size() && report.good(); ++program) {
    try {
      dialect::buckets_of(*programs.programs[program]->graph);
      all.push_back(communications_of(*programs.programs[program]));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::user) throw;
      report.findings.push_back({"order", error.what(), {{first_rank_of(programs, program), ""}}});
    }
  }
  return all;
}

// A program that was read and equals the one that was proved and written needs no further proof. Nor does a program
// with lowered collectives: it was proved before lowering, and its functions are compared with the collectives that
// they stand for.
bool tells_by_replicas(const runtime::RankPrograms& programs) {
  return std::none_of(programs.programs.begin(), programs.programs.end(),
                      [](const auto& program) { return program->as_written || program->lowered; });
}

void add_departure(const spmd::Program& program, int rank, Report& report) {
  if (const auto& departure = program.departure)
    report.findings.push_back({"meaning", departure->why, {{rank, departure->node}}});
}

void check_program(const runtime::RankPrograms& programs, size_t program, const std::vector<Communication>& its,
                   Report& report) {
  const spmd::Program& own = *programs.programs[program];
  for (const std::vector<int>& ranks : ranks_by_place(programs, static_cast<int>(program))) {
    // Types come first, since rules assume that operands fit. Among ranks that run one model, the first and the last
    // have the largest and the smallest shards.
    for (int rank : std::set<int>{ranks.front(), ranks.back()})
      if (report.good()) check_types(own, rank, report);
    // For a model that is compiled in this process, the session checks this.
    const bool was_read = !programs.placed || own.as_written;
    if (was_read && report.good()) check_values(own, ranks.front(), report);
    if (programs.placed && report.good()) check_layouts(own, its, ranks, report);
    if (programs.placed && report.good()) check_factors(own, ranks.front(), report);
    if (report.good()) add_departure(own, ranks.front(), report);
    say_whose(report, programs, ranks);
    if (!report.good()) return;
  }
}

void check_all(const runtime::RankPrograms& programs, Report& report) {
  std::vector<std::vector<Communication>> communications = all_communications(programs, report);
  if (!report.good()) return;
  if (!programs.placed)
    for (std::vector<Communication>& own : communications)
      for (Communication& communication : own) communication.layout.reset();
  auto program_of = [&](int64_t rank) { return programs.program_of.empty() ? 0 : programs.program_of[rank]; };
  for (int64_t rank = 0; rank < report.ranks; ++rank)
    report.communications += static_cast<int64_t>(communications[program_of(rank)].size());
  check_order(programs, communications, report);
  for (size_t p = 0; p < programs.programs.size() && report.good(); ++p)
    check_program(programs, p, communications[p], report);
  if (report.good() && tells_by_replicas(programs)) check_replicas(programs, communications, report);
}

// The first program that differs from what was written is wrong, whatever the other checks find.
void report_departure(const runtime::RankPrograms& programs, Report& report) {
  for (size_t p = 0; p < programs.programs.size(); ++p)
    for (const std::vector<int>& ranks : ranks_by_place(programs, static_cast<int>(p))) {
      add_departure(*programs.programs[p], ranks.front(), report);
      say_whose(report, programs, ranks);
      if (!report.good()) return;
    }
}

}  // namespace

Report prove(const runtime::RankPrograms& all) {
  const std::shared_ptr<const runtime::RankPrograms> joined = runtime::in_one_graph(all);
  const runtime::RankPrograms& programs = joined ? *joined : all;
  Report report;
  report.ranks = programs.mesh().size();
  report.models = static_cast<int64_t>(programs.programs.size());
  try {
    check_all(programs, report);
  } catch (const std::exception&) {
    // Findings of the rules are more precise than a departure, but the rules may not be able to follow an edited file.
    report.findings.clear();
    report_departure(programs, report);
    if (report.good()) throw;
  }
  return report;
}

}  // namespace tessera::proof
