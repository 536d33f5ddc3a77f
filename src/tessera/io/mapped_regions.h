#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <string>

#include "tessera/files.h"

/// The files that this process has mapped. A file that becomes shorter while it is mapped has pages that cannot be read
/// any more: touching one is the signal SIGBUS, whose handler finds here which file that was.
namespace tessera {

struct MappedRegion {
  const void* begin = nullptr;
  size_t size = 0;  ///< bytes; 0: there is nothing to record
  std::string path;
  dev_t device = 0;
  ino_t inode = 0;
};

/// Adds a file once it is mapped.
void note_mapped(const MappedRegion& region);
/// Removes the one that begins there, before it is unmapped.
void note_unmapped(const void* begin);

/// Whether this process has mapped the file to which a path leads.
bool is_mapped(const std::filesystem::path& path);

}  // namespace tessera
