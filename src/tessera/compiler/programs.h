#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/compiler/compile.h"
#include "tessera/compiler/source.h"
#include "tessera/runtime/classes.h"
#include "tessera/runtime/dry_run.h"
#include "tessera/runtime/executor.h"

namespace tessera::compiler {

/// Recomputes as much as it takes to fit a program into its memory limit, instead of CompileOptions::recompute.
inline constexpr std::string_view kRecomputeToFit = "auto";

/// How a model becomes a program that executors load.
struct ProgramOptions : CompileOptions {
  bool recompute_to_fit = false;             ///< as much as it takes to fit into memory_limit, instead of `recompute`
  std::optional<int64_t> max_reshard_bytes;  ///< most that a rank may receive in one layout change; else a user error
  int process_ranks = 1;                     ///< number of ranks that one process runs as threads; 0: all
  size_t memory_limit = 0;  ///< most bytes that a process may need for its ranks; more is a user error; 0: no limit
  runtime::ExecutorOptions sizing{.threads_per_rank = 1};  ///< the run options that memory figures depend on
};

/// A model compiled for all ranks.
struct CompiledProgram {
  std::shared_ptr<const Compiled> compiled;               ///< null for a program that was read
  std::shared_ptr<const spmd::Program> program;           ///< what rank 0 runs
  std::shared_ptr<const runtime::RankPrograms> programs;  ///< what all run
  runtime::ProgramsForSizes for_sizes;                    ///< compiles it for other classes of sizes; null likewise
  runtime::ExecutorOptions sizing{.threads_per_rank = 1};
  int process_ranks = 1;
  std::vector<RingOutcome> rings;  ///< as Compiled::rings, and those that memory forbids

  /// A dry run at these sizes; missing ones are those that cost estimates assumed.
  runtime::DryRun dry_run(const Symbols& sizes = {}) const;
  /// The memory of `rank` and its process at these sizes, planned once.
  runtime::PlannedRank planned(int rank, const Symbols& sizes = {}) const;
  /// Throws an error of that kind, with the first finding, if the ranks' programs do not fit together (proof/prove.h).
  void require_proof(ErrorKind kind) const;

 private:
  struct Planned {
    std::mutex mutex;
    std::map<std::pair<int, Symbols>, runtime::PlannedRank> ranks;
  };
  std::shared_ptr<Planned> planned_ = std::make_shared<Planned>();
};

/// The most bytes that any process needs for its ranks, which run all of these programs, at the sizes that cost
/// estimates assumed. Throws a user error if that exceeds the limit; 0: no limit.
size_t process_bytes_of(const std::vector<const CompiledProgram*>& programs, size_t limit = 0);

/// Compiles a model. Throws user errors that name the invalid operator, annotation, preset, axis or link, if the model
/// is split already, or if a limit of the options is exceeded.
CompiledProgram compile_program(const std::shared_ptr<const Source>& source, const ProgramOptions& options);

/// One rank of each class of similar ranks: those of a class have equal shapes, up to one unit of a dimension.
std::vector<int> ranks_of_classes(const runtime::RankPrograms& programs);

}  // namespace tessera::compiler
