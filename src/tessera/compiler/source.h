#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <mutex>
#include <optional>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::compiler {

/// A model as it was read or made, and its rewritten form. Immutable.
struct Source {
  std::filesystem::path path;
  OnnxModel model;
  std::vector<uint64_t> files;  ///< that it was read from (MappedFile::identity)

  Source(std::filesystem::path path, OnnxModel model, std::vector<uint64_t> files);

  /// The model after all rewrites, made once. Throws what rewriting throws.
  const OnnxModel& rewritten() const;

 private:
  mutable std::mutex mutex_;
  mutable std::optional<OnnxModel> rewritten_;
  mutable std::exception_ptr error_;
};

}  // namespace tessera::compiler
