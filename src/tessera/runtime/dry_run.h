#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/runtime/executor.h"
#include "tessera/runtime/memory_use.h"
#include "tessera/runtime/process_memory.h"

/// Plans of ranks that are neither connected nor run, for meshes of any size.
namespace tessera::runtime {

/// Programs at certain sizes, as an executor with these options would run them.
struct DryRun {
  std::shared_ptr<const RankPrograms> programs;
  Symbols symbols;
  ExecutorOptions options;
};

/// The machine programs of one rank, of its init if there is one and of its step, as text.
std::string machine_text_of_rank(const DryRun& run, int rank);

struct PlannedRank {
  MemoryUse use;             ///< of the rank, at its peak
  ProcessMemory::Need need;  ///< of its process
};
PlannedRank planned_rank(const DryRun& run, int rank);

/// Adds what a process needs for these ranks. `planned` is asked for one rank of each program: the others that run it
/// are as large, or differ by a unit of a dimension.
void add_ranks(ProcessMemory& memory, const DryRun& run, const std::vector<int>& ranks,
               const std::function<PlannedRank(int rank)>& planned);

/// The contents of the arenas of one rank of each program, for messages.
std::vector<device::NamedBytes> pieces_of(const DryRun& run, const std::vector<int>& ranks);

/// What a rank holds during each action.
std::vector<MemoryMoment> memory_over_time(const DryRun& run, int rank);

}  // namespace tessera::runtime
