#include "tessera/io/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>
#include <system_error>

#include "tessera/base/error.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void cannot_write(const fs::path& path, int error) {
  std::string reason = std::generic_category().message(error);
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EIO:
      fail_running("write", "{}: {}; nothing was changed there", path.string(), reason);
    default:
      fail("write", "{}: {}; name a path that can be written", path.string(), reason);
  }
}

// The target of `path` if it is a link, so that the rename replaces the target and not the link; no trailing slash.
fs::path destination(const fs::path& path) {
  if (path.empty()) fail("write", "the path to write is empty; name one");
  std::error_code error;
  fs::path full = fs::absolute(path, error).lexically_normal();
  if (!full.has_filename()) full = full.parent_path();
  for (int links = 0; links < 40 && fs::is_symlink(full, error); ++links) {
    fs::path target = fs::read_symlink(full, error);
    full = (full.parent_path() / target).lexically_normal();
  }
  if (!full.has_filename()) fail("write", "{} cannot be replaced; name a file or folder below it", path.string());
  return full;
}

fs::path sibling(const fs::path& path) {
  static std::atomic<uint64_t> counter = 0;
  return path.parent_path() / fmt::format(".{}.{}.{}.tmp", path.filename().string(), getpid(), counter++);
}

constexpr std::string_view kUnfinished = ".tmp";

// The process that made a sibling of `path`, from the sibling's name; 0 if it is not a sibling. A library that writes
// the sibling may have one of its own beside it, whose name goes on after a point.
pid_t maker_of(const std::string& name, const fs::path& path) {
  const std::string prefix = "." + path.filename().string() + ".";
  if (!name.starts_with(prefix)) return 0;
  const char *at = name.data() + prefix.size(), *end = name.data() + name.size();
  pid_t process = 0;
  uint64_t count = 0;
  const auto [dot, no_process] = std::from_chars(at, end, process);
  if (no_process != std::errc() || dot == end || *dot != '.') return 0;
  const auto [rest, no_count] = std::from_chars(dot + 1, end, count);
  std::string_view tail(rest, static_cast<size_t>(end - rest));
  if (no_count != std::errc() || !tail.starts_with(kUnfinished)) return 0;
  tail.remove_prefix(kUnfinished.size());
  return tail.empty() || tail.starts_with('.') ? process : 0;
}

// The sibling that the file of a library is for, or which it is itself.
fs::path sibling_of(const fs::path& file) {
  const std::string name = file.filename().string();
  return file.parent_path() / name.substr(0, name.rfind(kUnfinished) + kUnfinished.size());
}

// The writer of a sibling holds its lock. Whether processes of other machines live cannot be found out.
bool is_abandoned(const fs::path& sibling, pid_t maker) {
  if (kill(maker, 0) == 0 || errno != ESRCH) return false;
  const int descriptor = open(sibling.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return errno == ENOENT;
  const bool free = flock(descriptor, LOCK_EX | LOCK_NB) == 0;
  close(descriptor);
  return free;
}

// Removes siblings that killed processes have left for the same path.
void remove_abandoned(const fs::path& path) {
  std::error_code ignored;  // a file that cannot be removed stays
  for (const auto& entry : fs::directory_iterator(path.parent_path(), ignored)) {
    const pid_t maker = maker_of(entry.path().filename().string(), path);
    if (maker > 0 && !entry.is_symlink(ignored) && is_abandoned(sibling_of(entry.path()), maker))
      fs::remove_all(entry.path(), ignored);
  }
}

// The siblings that are being written, so that a process that is interrupted can remove them. It may do so from another
// thread while it ends, so this object is never destroyed.
class Unfinished {
 public:
  /// What create() returns, which makes the path; negative: it has not.
  template <typename Create>
  static int add(const fs::path& path, const Create& create) {
    std::lock_guard lock(mutex());
    if (is_ending) fail_running("write", "the process is about to end, so {} is not written", path.string());
    const int made = create();
    if (made >= 0) paths().insert(path);
    return made;
  }
  static void drop(const fs::path& path) {
    std::lock_guard lock(mutex());
    paths().erase(path);
  }
  static void remove_all() {
    std::lock_guard lock(mutex());
    is_ending = true;
    std::error_code ignored;  // the process ends anyway
    for (const fs::path& path : paths()) fs::remove_all(path, ignored);
  }

 private:
  static std::mutex& mutex() {
    static auto* one = new std::mutex;
    return *one;
  }
  static std::set<fs::path>& paths() {
    static auto* all = new std::set<fs::path>;
    return *all;
  }
  static inline bool is_ending = false;  // under the mutex
};

// Flushes a file or folder to the disk. File systems that cannot flush return EINVAL, which is not our failure.
void flush_to_disk(const fs::path& path, const fs::path& named) {
  int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) cannot_write(named, errno);
  int error = fsync(descriptor) < 0 && errno != EINVAL ? errno : 0;
  close(descriptor);
  if (error) cannot_write(named, error);
}

}  // namespace

AtomicFile::AtomicFile(fs::path path) : path_(destination(path)), temporary_(sibling(path_)) {
  std::error_code error;
  auto status = fs::status(path_, error);
  if (fs::is_directory(status)) fail("write", "{} is a folder; name a file to write", path_.string());
  if (fs::exists(status) && !fs::is_regular_file(status))
    fail("write", "{} is not a regular file; name a file to write", path_.string());
  if (fs::exists(status)) permissions_ = status.permissions();
  remove_abandoned(path_);
  // From its first byte on, only those who may read the old file may read the new one.
  const mode_t mode = permissions_ ? static_cast<mode_t>(*permissions_) & 0666 : 0666;
  descriptor_ = Unfinished::add(
      temporary_, [&] { return open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode); });
  if (descriptor_ < 0) cannot_write(path_, errno);
  flock(descriptor_, LOCK_EX | LOCK_NB);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  unlink(temporary_.c_str());
  Unfinished::drop(temporary_);
}

void AtomicFile::write(const void* data, size_t bytes) {
  check(descriptor_ >= 0, "a file is written before its commit");
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    ssize_t written = ::write(descriptor_, at, std::min(bytes, size_t{1} << 30));
    if (written < 0) {
      if (errno == EINTR) continue;
      cannot_write(path_, errno);
    }
    at += written;
    bytes -= static_cast<size_t>(written);
    position_ += static_cast<uint64_t>(written);
  }
}

void AtomicFile::sync() {
  flush_to_disk(temporary_, path_);
}

void AtomicFile::commit(Flush flush) {
  check(descriptor_ >= 0, "a file is committed once");
  if (permissions_ && chmod(temporary_.c_str(), static_cast<mode_t>(*permissions_)) < 0) cannot_write(path_, errno);
  if (flush == Flush::yes) flush_to_disk(temporary_, path_);
  if (std::rename(temporary_.c_str(), path_.c_str()) < 0) cannot_write(path_, errno);
  Unfinished::drop(temporary_);
  close(descriptor_);
  descriptor_ = -1;
  if (flush == Flush::yes) flush_to_disk(path_.parent_path(), path_);
}

AtomicFolder::AtomicFolder(fs::path path, Objection objection)
    : path_(destination(path)), temporary_(sibling(path_)), objection_(std::move(objection)) {
  require_replaceable();
  remove_abandoned(path_);
  if (Unfinished::add(temporary_, [&] { return mkdir(temporary_.c_str(), 0777); }) < 0) cannot_write(path_, errno);
  descriptor_ = open(temporary_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ >= 0) flock(descriptor_, LOCK_EX | LOCK_NB);
}

AtomicFolder::~AtomicFolder() {
  if (descriptor_ >= 0) close(descriptor_);
  if (committed_) return;
  std::error_code ignored;  // a destructor can do no more
  fs::remove_all(temporary_, ignored);
  Unfinished::drop(temporary_);
}

void AtomicFolder::require_replaceable() const {
  std::error_code error;
  auto status = fs::status(path_, error);
  if (!fs::exists(status)) return;
  if (!fs::is_directory(status)) fail("write", "{} is not a folder; name a folder to write", path_.string());
  if (fs::is_empty(path_, error)) return;
  if (auto reason = objection_(path_))
    fail("write", "{} {}; name a new folder, or empty this one", path_.string(), *reason);
}

void AtomicFolder::commit() {
  check(!committed_, "a folder is committed once");
  for (const auto& entry : fs::recursive_directory_iterator(temporary_))
    if (!entry.is_symlink()) flush_to_disk(entry.path(), path_);
  flush_to_disk(temporary_, path_);
  require_replaceable();
  Unfinished::drop(temporary_);  // the old folder may take this place from here on
  fs::path old;                  // where the replaced folder went
  if (std::rename(temporary_.c_str(), path_.c_str()) == 0) {
    // onto nothing, or an empty folder
  } else if (errno != ENOTEMPTY && errno != EEXIST) {
    cannot_write(path_, errno);
  } else if (renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) == 0) {
    old = temporary_;
  } else {  // a file system that cannot exchange: two renames, the old folder back if the second fails
    old = sibling(path_);
    if (std::rename(path_.c_str(), old.c_str()) < 0) cannot_write(path_, errno);
    if (std::rename(temporary_.c_str(), path_.c_str()) < 0) {
      int error = errno;
      std::rename(old.c_str(), path_.c_str());
      cannot_write(path_, error);
    }
  }
  committed_ = true;
  flush_to_disk(path_.parent_path(), path_);
  std::error_code ignored;  // the new folder is in place; the rest of the old one is hidden
  if (!old.empty()) fs::remove_all(old, ignored);
}

void write_file(const fs::path& path, std::string_view bytes, Flush flush) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit(flush);
}

inline namespace v1 {

void write_file(const fs::path& path, std::string_view bytes) {
  write_file(path, bytes, Flush::yes);
}

void remove_unfinished() {
  Unfinished::remove_all();
}

}  // namespace v1

}  // namespace tessera
