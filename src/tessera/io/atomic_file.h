#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/files.h"

namespace tessera {

/// Whether commit() waits until the bytes are on the disk. Otherwise a power cut may leave an empty file under the new
/// name; but a process that is being terminated must not wait for a slow disk.
enum class Flush { yes, no };

/// A file that appears whole or not at all: bytes go to a hidden sibling, which commit() flushes to the disk (unless it
/// is told not to) and renames to `path`. Destroyed without a commit, it leaves the old file unchanged and removes the
/// sibling. The new file takes over the permissions of the one it replaces. Siblings that a killed process left for the
/// same path are removed.
///
/// A path that cannot be written (no such folder, no permission, a folder or a device) is a user error; a disk that
/// fills up is a running error. Both name `path`.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  uint64_t position() const { return position_; }  ///< bytes written so far

  /// The sibling, for a library that writes by path; it may replace that file.
  const std::filesystem::path& temporary() const { return temporary_; }
  /// Flushes to the disk ahead of commit(), so that none of several files is renamed before all are safe.
  void sync();
  void commit(Flush flush = Flush::yes);

 private:
  std::filesystem::path path_, temporary_;
  std::optional<std::filesystem::perms> permissions_;  ///< of the file that is replaced
  int descriptor_ = -1;
  uint64_t position_ = 0;
};

/// The same for a folder of files: fill temporary(), then commit().
class AtomicFolder {
 public:
  /// Returns the reason not to delete a folder with all its contents, as a predicate ("holds other files"); nullopt:
  /// there is none.
  using Objection = std::function<std::optional<std::string>(const std::filesystem::path& folder)>;

  /// An existing folder at `path` is replaced only if it is empty or `objection` returns nullopt; anything else there
  /// is a user error, so that a mistyped path deletes nothing.
  AtomicFolder(std::filesystem::path path, Objection objection);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  const std::filesystem::path& temporary() const { return temporary_; }
  void commit();

 private:
  void require_replaceable() const;

  std::filesystem::path path_, temporary_;
  Objection objection_;
  int descriptor_ = -1;  ///< holds the lock that marks the folder as being written
  bool committed_ = false;
};

/// write_file(), with a choice.
void write_file(const std::filesystem::path& path, std::string_view bytes, Flush flush);

}  // namespace tessera
