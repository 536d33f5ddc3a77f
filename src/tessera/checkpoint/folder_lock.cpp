#include "tessera/checkpoint/folder_lock.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <random>
#include <system_error>

#include "tessera/base/error.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kProcess = "process ";  // how the file's text begins

// "process 123 on host a, since 2026-01-31 12:00:00 UTC"
std::string words_of_holder() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  return fmt::format("{}{} on host {}, since {:%Y-%m-%d %H:%M:%S} UTC", kProcess, getpid(), host.data(), now);
}

std::string holder_of(int file) {
  std::array<char, 512> text{};
  const ssize_t bytes = pread(file, text.data(), text.size() - 1, 0);
  const std::string_view words(text.data(), bytes > 0 ? static_cast<size_t>(bytes) : 0);
  return words.starts_with(kProcess) ? std::string(words) : "another process";  // which has not written it yet
}

// Whether the path still names the file: the holder before may have removed it.
bool names(const fs::path& path, int file) {
  struct stat opened = {}, there = {};
  return fstat(file, &opened) == 0 && stat(path.c_str(), &there) == 0 && opened.st_ino == there.st_ino &&
         opened.st_dev == there.st_dev;
}

}  // namespace

FolderLock::FolderLock(const fs::path& folder) : path_(folder / ".lock") {
  do {
    file_ = Descriptor(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (file_.get() < 0)
      fail("checkpoint", "{}: {}; name a folder that can be written", path_.string(),
           std::generic_category().message(errno));
    // A lock of the open file, not of the process: another part of this process does not release it.
    struct flock whole = {};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    if (fcntl(file_.get(), F_OFD_SETLK, &whole) != 0) {
      if (errno == EAGAIN || errno == EACCES)
        fail("checkpoint", "{} is being written by {}; wait until it has ended, or name another folder",
             folder.string(), holder_of(file_.get()));
      problem_ = fmt::format("{} cannot be locked: {}; make sure that no other run writes there", folder.string(),
                             std::generic_category().message(errno));
      return;
    }
  } while (!names(path_, file_.get()));
  const std::string words = words_of_holder();
  if (ftruncate(file_.get(), 0) != 0 ||
      pwrite(file_.get(), words.data(), words.size(), 0) != static_cast<ssize_t>(words.size()))
    return;  // on a full disk the lock holds all the same; only its holder has no name
}

FolderLock::~FolderLock() {
  if (file_.get() >= 0 && problem_.empty() && names(path_, file_.get())) unlink(path_.c_str());
}

std::string new_run() {
  std::random_device chance;
  return fmt::format("{:08x}{:08x}", chance(), chance());
}

}  // namespace tessera::checkpoint
