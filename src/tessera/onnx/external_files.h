#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/io/mapped_file.h"

namespace tessera::codec {

/// The place of a tensor's bytes, as its file states.
struct ExternalRange {
  std::string location;            ///< relative to the model's folder
  uint64_t offset = 0;             ///< bytes
  std::optional<uint64_t> length;  ///< bytes; the rest of the file if not given
};

/// Bytes of a mapped file.
struct MappedRange {
  std::shared_ptr<const MappedFile> file;
  std::span<const std::byte> bytes;
};

/// `location` below `folder`; a user error naming `tensor` if it is empty, absolute, or leads out of the folder through
/// ".." or a symbolic link.
std::filesystem::path resolve_location(const std::filesystem::path& folder, const std::string& location,
                                       const std::string& tensor, std::string_view stage);

/// The external data files of one model; each is mapped once.
class ExternalFiles {
 public:
  explicit ExternalFiles(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Throws user errors that name `tensor` for a file that is missing, too short, or outside the folder.
  MappedRange read(const ExternalRange& range, const std::string& tensor);

  /// Appends the identities of the files that were read (MappedFile::identity).
  void append_identities(std::vector<uint64_t>& identities) const;

 private:
  std::filesystem::path folder_;
  std::map<std::string, std::shared_ptr<const MappedFile>> opened_;
};

}  // namespace tessera::codec
