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

/// Why no single program holds a model.
struct Obstacle {
  ops::Needs needs;
  std::string why;  ///< the message for the user
};

/// A model as it was read or made, and its rewritten form. Immutable.
struct Source {
  std::filesystem::path path;
  OnnxModel model;
  std::vector<uint64_t> files;  ///< that it was read from (MappedFile::identity)

  Source(std::filesystem::path path, OnnxModel model, std::vector<uint64_t> files);

  /// The model after all rewrites, made once. Throws what rewriting throws.
  const OnnxModel& rewritten() const;
  /// Why no single program holds the model, and what of it must run apart. Nullopt if one does, or if rewriting fails
  /// for another reason, of which whoever compiles the model hears.
  std::optional<Obstacle> obstacle() const;

 private:
  mutable std::mutex mutex_;
  mutable std::optional<OnnxModel> rewritten_;
  mutable std::exception_ptr error_;
};

}  // namespace tessera::compiler
