#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/ops/library/one_program.h"

namespace tessera::compiler {

/// Why a model does not fit one program.
struct Obstacle {
  ops::Needs needs;
  std::string why;  ///< the message for the user
};

/// A model as it was read or made, and its rewritten form. Immutable.
struct Source {
  std::filesystem::path path;
  OnnxModel model;
  std::vector<uint64_t> files;  ///< the files that it was read from (MappedFile::identity)

  Source(std::filesystem::path path, OnnxModel model, std::vector<uint64_t> files);

  /// The rewritten model, computed once. Throws like rewriting.
  const OnnxModel& rewritten() const;
  /// Why the model does not fit one program, and which of its nodes must run apart. Nullopt if it fits, or if rewriting
  /// fails for another reason, which compiling the model will report.
  std::optional<Obstacle> obstacle() const;

 private:
  mutable std::mutex mutex_;
  mutable std::optional<OnnxModel> rewritten_;
  mutable std::exception_ptr error_;
};

}  // namespace tessera::compiler
