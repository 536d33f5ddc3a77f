#include "tessera/runtime/dry_run.h"

#include <fmt/format.h>

#include <map>

#include "tessera/runtime/init.h"
#include "tessera/runtime/process_memory.h"
#include "tessera/runtime/sized_rank.h"
#include "tessera/runtime/whole_states.h"

namespace tessera::runtime {
namespace {

SizedRank::Options sizing(const DryRun& run) {
  return {threads_of_rank(*run.programs, run.options),
          run.options.device,
          {run.options.keep_all, run.options.overlap, run.options.prefetch}};
}

SizedRank sized(const DryRun& run, int rank) {
  return {run.programs, rank, run.symbols, sizing(run)};
}

size_t copies_of(const DryRun& run, int rank) {
  return run.options.saves ? saved_bytes(*run.programs, rank) : 0;
}

// Ranks that run one program are equally large, or differ by a unit of a dimension.
std::map<int, std::vector<int>> by_program(const RankPrograms& programs, const std::vector<int>& ranks) {
  std::map<int, std::vector<int>> classes;
  for (int rank : ranks) classes[programs.program_of.empty() ? 0 : programs.program_of[rank]].push_back(rank);
  return classes;
}

}  // namespace

std::string machine_text_of_rank(const DryRun& run, int rank) {
  const SizedRank sized = runtime::sized(run, rank);
  const std::string init =
      machine_text_of_init(*run.programs, rank, sized.state.threads(), sized.state.memory().device());
  const std::string step = sized.plan.text();
  return init.empty() ? step : "init, which runs once:\n" + init + "\nstep:\n" + step;
}

PlannedRank planned_rank(const DryRun& run, int rank) {
  const SizedRank sized = runtime::sized(run, rank);
  MemoryUse use = arena_use(sized.plan.machine(), run.programs->of(rank));
  use.copies = copies_of(run, rank);
  use.peak = sized.state.peak_bytes(sized.plan.arena_bytes() + use.copies);
  return {use, ProcessMemory::need_of(sized.state, sized.plan.arena_bytes())};
}

void add_ranks(ProcessMemory& memory, const DryRun& run, const std::vector<int>& ranks,
               const std::function<PlannedRank(int rank)>& planned) {
  size_t copies = 0;
  for (int rank : ranks) copies += copies_of(run, rank);
  memory.add_outputs(output_bytes(*run.programs, run.symbols), copies);
  for (const auto& [program, alike] : by_program(*run.programs, ranks)) {
    const ProcessMemory::Need first = planned(alike.front()).need;
    for (int rank : alike) {
      ProcessMemory::Need need = first;
      need.rank = rank;
      if (rank != alike.front() && !first.weights.empty()) {
        WeightNames names(run.programs->mesh(), rank);
        need.weights = names.renamed(first.weights, *run.programs);
      }
      memory.add(need);
    }
  }
}

std::vector<device::NamedBytes> pieces_of(const DryRun& run, const std::vector<int>& ranks) {
  std::vector<device::NamedBytes> pieces;
  for (const auto& [program, alike] : by_program(*run.programs, ranks))
    for (device::NamedBytes& piece : sized(run, alike.front()).plan.pieces()) pieces.push_back(std::move(piece));
  return pieces;
}

std::vector<MemoryMoment> memory_over_time(const DryRun& run, int rank) {
  const SizedRank sized = runtime::sized(run, rank);
  const bind::MachineProgram& machine = sized.plan.machine();
  const std::vector<MemoryUse> arena = arena_over_time(machine, run.programs->of(rank));
  const size_t copies = copies_of(run, rank);
  std::vector<MemoryMoment> moments;
  for (size_t a = 0; a < machine.actions->size(); ++a) {
    const bind::StepInfo& info = (*machine.infos)[a];
    MemoryMoment& moment = moments.emplace_back();
    moment.operation = fmt::format("{}{} '{}'", info.started >= 0 ? "wait for " : "", info.op, info.name);
    moment.use = arena[a];
    moment.use.copies = copies;
    moment.use.peak += machine.staging_bytes + sized.state.state_bytes() + copies;
  }
  return moments;
}

}  // namespace tessera::runtime
