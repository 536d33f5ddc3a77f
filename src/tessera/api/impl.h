#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "tessera/compiler/compile.h"
#include "tessera/compiler/segments.h"
#include "tessera/runtime/classes.h"
#include "tessera/runtime/dry_run.h"
#include "tessera/tessera.h"

/// The implementations of the public classes.
namespace tessera {
inline namespace v1 {

struct Model::Impl {
  std::filesystem::path path;
  OnnxModel model;              ///< as read
  std::vector<uint64_t> files;  ///< that it was read from (MappedFile::identity)

  /// The model after all rewrites, made once. Throws what rewriting throws.
  const OnnxModel& rewritten() const;
  /// Its parts (compiler/segments.h), made once. Throws what segments_of throws.
  const std::vector<compiler::Segment>& segments() const;
  /// Model::why_in_parts.
  const std::string& why_in_parts() const;

 private:
  mutable std::mutex mutex_;
  mutable std::optional<OnnxModel> rewritten_;
  mutable std::exception_ptr rewrite_error_;
  mutable std::vector<compiler::Segment> segments_;
  mutable std::string why_in_parts_;
};

struct Program::Impl {
  std::shared_ptr<const spmd::Program> program;            ///< what rank 0 runs
  std::shared_ptr<const runtime::RankPrograms> programs;   ///< what all run
  std::string source;                                      ///< a description of its source
  std::optional<compiler::Compiled> compiled;              ///< unless the program was read
  runtime::ProgramsForSizes for_sizes;                     ///< likewise; else null
  runtime::ExecutorOptions sizing{.threads_per_rank = 1};  ///< what figures are for
  int process_ranks = 1;                                   ///< likewise; 0: all
  ProgramSummary summary;
  mutable std::mutex known;  ///< guards figures
  /// By rank and sizes, what has been asked for: each takes a plan of all that the rank does.
  mutable std::map<std::pair<int64_t, SymbolSizes>, runtime::PlannedRank> planned;
  mutable std::map<std::pair<int64_t, SymbolSizes>, RankFigures> figures;
};

}  // namespace v1

namespace api {

/// Another model in place of one that was read from the same files.
Model model_of(const Model& from, OnnxModel changed);

/// Throws an error of that kind, with the first finding, if the ranks' programs do not fit together (proof/prove.h).
void require_proof(const Program& program, ErrorKind kind);

}  // namespace api
}  // namespace tessera
