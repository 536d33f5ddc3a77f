#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera::comm {

/// Memory that all ranks of a local world share at the same addresses: this process' own memory if all ranks are its
/// threads, or memory shared between processes.
class Region {
 public:
  virtual ~Region() = default;

  /// `bytes` uninitialized bytes that live as long as the region, aligned to 64 bytes. Any thread may call this.
  virtual std::byte* take(size_t bytes) = 0;
  /// The same for buffers of a rank of this process, until the last owner releases them. Throws a running error naming
  /// `what` if there is no memory.
  virtual std::shared_ptr<std::byte[]> allocate(int rank, size_t bytes, const char* what) = 0;
  /// Whether all ranks see the memory at that address.
  virtual bool holds(const void* address) const = 0;
  virtual bool is_between_processes() const = 0;

  /// Takes ownership of a buffer, as long as the region lives.
  void keep(std::shared_ptr<std::byte[]> buffer) {
    std::lock_guard lock(mutex_);
    kept_.push_back(std::move(buffer));
  }

  /// `count` objects, each constructed from the arguments; nobody destroys them.
  template <typename T, typename... Args>
  std::span<T> make(size_t count, Args&&... args) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= 64);
    T* first = reinterpret_cast<T*>(take(count * sizeof(T)));
    for (size_t i = 0; i < count; ++i) new (first + i) T(args...);
    return {std::launder(first), count};
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<std::byte[]>> kept_;
};

/// Memory of this process alone.
std::shared_ptr<Region> make_private_region();

}  // namespace tessera::comm
