#include "tessera/program_io/file_stamp.h"

#include "tessera/base/error.h"
#include "tessera/io/crc32.h"
#include "tessera/io/mapped_file.h"

namespace tessera::program_io {
namespace fs = std::filesystem;

FileStamp stamp_of(const fs::path& folder, const std::string& file) {
  auto mapped = MappedFile::open(folder / file, "program");
  return {file, mapped->size(), update_crc32(0, mapped->data(), mapped->size())};
}

void check_size(const fs::path& folder, const FileStamp& stamp, std::string_view fix) {
  std::error_code error;
  if (!fs::exists(folder / stamp.file, error))
    fail("program", "'{}' is missing, which the program needs; {}", (folder / stamp.file).string(), fix);
  if (const uint64_t bytes = fs::file_size(folder / stamp.file, error); !error && bytes != stamp.bytes)
    fail("program", "'{}' has {} bytes, but was written with {}; {}", (folder / stamp.file).string(), bytes,
         stamp.bytes, fix);
}

void check_stamp(const fs::path& folder, const FileStamp& stamp, std::string_view fix) {
  check_size(folder, stamp, fix);
  FileStamp found = stamp_of(folder, stamp.file);
  if (found.crc32 != stamp.crc32)
    fail("program", "'{}' has changed since it was written (CRC-32 {:08x}, then {:08x}); {}",
         (folder / stamp.file).string(), found.crc32, stamp.crc32, fix);
}

}  // namespace tessera::program_io
