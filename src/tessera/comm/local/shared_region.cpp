#include "tessera/comm/local/shared_region.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "tessera/base/descriptor.h"
#include "tessera/base/error.h"
#include "tessera/comm/local/free_ranges.h"

namespace tessera::comm {
namespace {

// Below the addresses that the kernel and the sanitizers use, and the same in every process.
constexpr uintptr_t kBase = uintptr_t{1} << 45;
constexpr size_t kBytes = size_t{1} << 44;
constexpr size_t kPage = size_t{2} << 20;
constexpr uint64_t kMagic = 0x7465737365726131;  // "tessera1"

size_t round_up(size_t bytes, size_t to) {
  return (bytes + to - 1) / to * to;
}

}  // namespace

struct SharedRegion::Header {
  uint64_t magic = kMagic;
  int ranks = 0;
  size_t part = 0;           // bytes of each of the parts
  std::atomic<size_t> next;  // free from here on, up to the first part's end
  std::atomic<void*> root{nullptr};
};

// The mapping, and which of the rank's buffers are dealt out.
struct SharedRegion::Own {
  std::mutex mutex;
  FreeRanges free{0, 0};
  std::byte* base = nullptr;
  bool left = false;  // the world is over for this process, but perhaps not for ranks that still read its buffers

  explicit Own(int file) {
    void* wanted = reinterpret_cast<void*>(kBase);
    void* mapped =
        mmap(wanted, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, file, 0);
    if (mapped != wanted) {
      const int error = errno;
      if (mapped != MAP_FAILED) munmap(mapped, kBytes);  // a kernel that treats the address as a hint
      fail_running("comm",
                   "the memory that ranks share cannot be mapped at its address: {}; is there a limit (ulimit -v)?",
                   std::strerror(error));
    }
    base = static_cast<std::byte*>(mapped);
    madvise(base, kBytes, MADV_HUGEPAGE);  // only advice, which the kernel may ignore
    madvise(base, kBytes, MADV_DONTDUMP);
  }
  ~Own() { munmap(base, kBytes); }

  void give_back(std::byte* memory, size_t bytes) {
    std::lock_guard lock(mutex);
    if (left) return;
    madvise(memory, bytes, MADV_REMOVE);  // the pages, not the addresses
    free.give_back(static_cast<size_t>(memory - base), bytes);
  }
};

int SharedRegion::create(int ranks) {
  Descriptor file(memfd_create("tessera", MFD_CLOEXEC));
  if (file.get() < 0 || ftruncate(file.get(), static_cast<off_t>(kBytes)) != 0)
    fail_running("comm", "there is no memory for ranks to share: {}; is there a limit (ulimit -f)?",
                 std::strerror(errno));
  const Own own(file.get());
  auto* header = new (own.base) Header;
  header->ranks = ranks;
  header->part = kBytes / (static_cast<size_t>(ranks) + 1) / kPage * kPage;
  header->next = round_up(sizeof(Header), 64);
  return file.release();
}

namespace {

// A shorter file than the shared memory could not be read at its end.
int of_full_size(int file) {
  struct stat facts {};
  if (fstat(file, &facts) != 0 || static_cast<size_t>(facts.st_size) != kBytes)
    fail_running("comm", "file {} is not the memory that ranks share", file);
  return file;
}

}  // namespace

SharedRegion::SharedRegion(int file, int rank) : own_(std::make_shared<Own>(of_full_size(file))) {
  header_ = reinterpret_cast<Header*>(own_->base);
  if (header_->magic != kMagic) fail_running("comm", "file {} is not the memory that ranks share", file);
  if (rank >= header_->ranks)
    fail_running("comm", "rank {} is not one of the {} ranks that share the memory", rank, header_->ranks);
  const size_t part = header_->part, first = part * (static_cast<size_t>(std::max(rank, 0)) + 1);
  if (rank >= 0) own_->free = FreeRanges(first, first + part);
}

SharedRegion::~SharedRegion() {
  std::lock_guard lock(own_->mutex);
  own_->left = true;
}

std::byte* SharedRegion::take(size_t bytes) {
  const size_t size = round_up(bytes, 64), first = header_->next.fetch_add(size);
  if (first + size > header_->part) fail_running("comm", "there is no room for {} bytes that ranks share", bytes);
  return own_->base + first;
}

std::shared_ptr<std::byte[]> SharedRegion::allocate(int, size_t bytes, const char* what) {
  const size_t size = round_up(std::max<size_t>(bytes, 1), size_t{4} << 10);
  std::lock_guard lock(own_->mutex);
  const auto begin = own_->free.take(size);
  if (!begin) fail_running("memory", "cannot allocate {} bytes for {} in the memory that ranks share", bytes, what);
  return {own_->base + *begin, [own = own_, size](std::byte* memory) { own->give_back(memory, size); }};
}

bool SharedRegion::holds(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  return std::less_equal<>()(own_->base, at) && std::less<>()(at, own_->base + kBytes);
}

int SharedRegion::ranks() const {
  return header_->ranks;
}
void* SharedRegion::root() const {
  return header_->root.load(std::memory_order_acquire);
}
void SharedRegion::set_root(void* root) {
  header_->root.store(root, std::memory_order_release);
}

}  // namespace tessera::comm
