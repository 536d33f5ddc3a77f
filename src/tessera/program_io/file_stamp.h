#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace tessera::program_io {

/// The size and checksum that identify a file of a written program.
struct FileStamp {
  std::string file;  ///< relative to the program's folder
  uint64_t bytes = 0;
  uint32_t crc32 = 0;  ///< of all bytes (ISO 3309, as in zip and PNG)

  bool operator==(const FileStamp&) const = default;
};

/// The current stamp of a file. Throws a user error (stage "program") if it cannot be read.
FileStamp stamp_of(const std::filesystem::path& folder, const std::string& file);

/// Throws a user error that names the file if it is missing or its size differs from its stamp; `fix` says what to do.
void check_size(const std::filesystem::path& folder, const FileStamp& stamp, std::string_view fix);

/// Throws a user error that names the file if it is missing or differs from its stamp; `fix` says what to do.
void check_stamp(const std::filesystem::path& folder, const FileStamp& stamp, std::string_view fix);

}  // namespace tessera::program_io
