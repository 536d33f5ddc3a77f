#pragma once

#include <filesystem>
#include <string>

#include "tessera/base/descriptor.h"

namespace tessera::checkpoint {

/// Keeps a folder of checkpoints for one run while it lives: a lock on the file ".lock" there, which the system
/// releases when the process ends, however it ends. On file systems that machines share, it holds for all of them, as
/// far as these carry locks (NFS does).
class FolderLock {
 public:
  /// Throws a user error that names the process and host that hold the folder, if there is another.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  /// The reason why other runs are not excluded (a file system without locks); "" if they are.
  const std::string& problem() const { return problem_; }

 private:
  std::filesystem::path path_;
  Descriptor file_;
  std::string problem_;
};

/// A random text of 16 hexadecimal digits, unique to this run.
std::string new_run();

}  // namespace tessera::checkpoint
