#include "tessera/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tessera/base/descriptor.h"
#include "tessera/base/error.h"
#include "tessera/io/mapped_regions.h"
#include "tessera/ir/hash.h"
#include "tessera/ir/on_demand.h"

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
  note_mapped({data, size, path.string(), status.st_dev, status.st_ino});
  return std::shared_ptr<const MappedFile>(new MappedFile(data, size, true, identity_of(status)), Delete());
}

std::shared_ptr<const MappedFile> MappedFile::copy_of(std::string_view bytes) {
  auto* copy = new std::byte[bytes.size()];
  if (!bytes.empty()) std::memcpy(copy, bytes.data(), bytes.size());
  return std::shared_ptr<const MappedFile>(new MappedFile(copy, bytes.size(), false, 0));
}

bool MappedFile::holds(const Tensor& tensor) {
  return tensor.data && std::get_deleter<Delete>(tensor.owner);
}

void MappedFile::let_go(const Tensor& tensor, int64_t first, int64_t count) {
  if (count == 0) return;
  if (const ElementMaker* maker = maker_of(tensor)) return maker->let_go(first, count);
  if (!holds(tensor)) return;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = [&](int64_t index) {
    return reinterpret_cast<uintptr_t>(tensor.data) + bytes_of(tensor.dtype, index);
  };
  const uintptr_t begin = address(first) / page * page;
  ::madvise(reinterpret_cast<void*>(begin), address(first + count) - begin, MADV_DONTNEED);  // only advice
}

MappedFile::~MappedFile() {
  if (!mapped_) {
    delete[] data_;
  } else if (data_) {
    note_unmapped(data_);
    ::munmap(const_cast<std::byte*>(data_), size_);
  }
}

}  // namespace tessera
