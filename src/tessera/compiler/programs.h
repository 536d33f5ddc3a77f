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

/// Where a program's results are computed again so that it fits into its limit, instead of as CompileOptions say.
inline constexpr std::string_view kRecomputeToFit = "auto";

/// How a model becomes a program that executors load.
struct ProgramOptions : CompileOptions {
  bool recompute_to_fit = false;             ///< as much as fits into memory_limit, in place of `recompute`
  std::optional<int64_t> max_reshard_bytes;  ///< that a rank may receive for a change of layout; more is a user error
  int process_ranks = 1;  ///< that one process runs as threads; 0: all
  size_t memory_limit = 0;                   ///< bytes that a process may need for its ranks; more is a user error; 0: any
  runtime::ExecutorOptions sizing{.threads_per_rank = 1};  ///< how it will run, as far as figures depend on it
};

/// A model compiled for all ranks.
struct CompiledProgram {
  std::shared_ptr<const Compiled> compiled;               ///< null: of a program that was read
  std::shared_ptr<const spmd::Program> program;           ///< what rank 0 runs
  std::shared_ptr<const runtime::RankPrograms> programs;  ///< what all run
  runtime::ProgramsForSizes for_sizes;                    ///< compiles it for other classes of sizes; null likewise
  runtime::ExecutorOptions sizing{.threads_per_rank = 1};
  int process_ranks = 1;

  /// A dry run at these sizes; those that are missing are those that choices by cost assumed.
  runtime::DryRun dry_run(const Symbols& sizes = {}) const;
  /// What `rank` and its process need then, planned once.
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

/// The most that any process needs for its ranks, which run all of these programs, at the sizes that choices by cost
/// assumed. Throws a user error if that is more than the limit, unless it is 0.
size_t process_bytes_of(const std::vector<const CompiledProgram*>& programs, size_t limit = 0);

/// Compiles a model. Throws user errors that name the operator, annotation, preset, axis or link that is wrong, for a
/// model that is split already, and for what exceeds the options' limits.
CompiledProgram compile_program(const std::shared_ptr<const Source>& source, const ProgramOptions& options);

/// One rank of each class of ranks that run alike. Ranks of a class are equally large, or differ by a unit of a
/// dimension.
std::vector<int> ranks_of_classes(const runtime::RankPrograms& programs);

}  // namespace tessera::compiler
