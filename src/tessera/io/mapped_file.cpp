#include "tessera/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "tessera/base/descriptor.h"
#include "tessera/base/error.h"
#include "tessera/ir/hash.h"

namespace tessera {
namespace {

uint64_t identity_of(const struct stat& status) {
  Hash hash;
  for (const timespec& time : {status.st_mtim, status.st_ctim}) {
    hash.add(static_cast<uint64_t>(time.tv_sec));
    hash.add(static_cast<uint64_t>(time.tv_nsec));
  }
  hash.add(static_cast<uint64_t>(status.st_dev));
  hash.add(static_cast<uint64_t>(status.st_ino));
  hash.add(static_cast<uint64_t>(status.st_size));
  return hash.value();
}

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::open(const std::filesystem::path& path, std::string_view stage) {
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0)
    fail(stage, "cannot open '{}': {}; check the path and its permissions", path.string(), std::strerror(errno));
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) fail(stage, "cannot examine '{}': {}", path.string(), std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail(stage, "'{}' is not a regular file; give the path of a file", path.string());
  size_t size = static_cast<size_t>(status.st_size);
  const std::byte* data = nullptr;
  if (size > 0) {
    void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (mapped == MAP_FAILED) fail(stage, "cannot map '{}' into memory: {}", path.string(), std::strerror(errno));
    data = static_cast<const std::byte*>(mapped);
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(data, size, true, identity_of(status)));
}

std::shared_ptr<const MappedFile> MappedFile::copy_of(std::string_view bytes) {
  auto* copy = new std::byte[bytes.size()];
  if (!bytes.empty()) std::memcpy(copy, bytes.data(), bytes.size());
  return std::shared_ptr<const MappedFile>(new MappedFile(copy, bytes.size(), false, 0));
}

MappedFile::~MappedFile() {
  if (!mapped_)
    delete[] data_;
  else if (data_)
    ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace tessera
