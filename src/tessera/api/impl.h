#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "tessera/api/compile.h"
#include "tessera/runtime/classes.h"
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

 private:
  mutable std::mutex mutex_;
  mutable std::optional<OnnxModel> rewritten_;
};

struct Program::Impl {
  std::shared_ptr<const spmd::Program> program;           ///< what rank 0 runs
  std::shared_ptr<const runtime::RankPrograms> programs;  ///< what all run
  std::string source;                                     ///< a description of its source
  std::optional<api::Compiled> compiled;                  ///< unless the program was read
  runtime::ProgramsForSizes for_sizes;                    ///< likewise; else null
  ProgramSummary summary;
};

}  // namespace v1

namespace api {

/// Throws an error of that kind, with the first finding, if the ranks' programs do not fit together (proof/prove.h).
void require_proof(const Program& program, ErrorKind kind);

/// Declared inputs or outputs.
TensorInfo info_of(const Value& value);
TensorInfo info_of(std::string_view name, const TensorType& type);

/// Counts the communication of one step, and what rank 0 receives, at the program's hints.
ProgramSummary summarize(const spmd::Program& program);
ReshardSummary summarize(const spmd::ReshardRecord& record, const spmd::Program& program);

/// Throws a user error if the model no longer has such a tensor.
Explanation explain(const Compiled& compiled, const std::string& tensor);

}  // namespace api
}  // namespace tessera
