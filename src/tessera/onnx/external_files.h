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

/// The file that `location` names from one of these folders; a user error naming `tensor` if it is empty, absolute, or
/// leads out of all of them through ".." or a symbolic link.
std::filesystem::path resolve_location(const std::vector<std::filesystem::path>& folders, const std::string& location,
                                       const std::string& tensor, std::string_view stage);

/// The external data files of one model; each is mapped once.
class ExternalFiles {
 public:
  /// Data must be in these folders or below.
  explicit ExternalFiles(std::vector<std::filesystem::path> folders) : folders_(std::move(folders)) {}
  /// Those of a file: in its folder, or in that of the file that it is a link to. So caches work whose models and data
  /// are links into one folder of blobs.
  static ExternalFiles beside(const std::filesystem::path& file);

  /// Throws user errors that name `tensor` for a file that is missing, too short, or outside the folders.
  MappedRange read(const ExternalRange& range, const std::string& tensor);

  /// Appends the identities of the files that were read (MappedFile::identity).
  void append_identities(std::vector<uint64_t>& identities) const;

 private:
  std::vector<std::filesystem::path> folders_;
  std::map<std::string, std::shared_ptr<const MappedFile>> opened_;
};

}  // namespace tessera::codec
