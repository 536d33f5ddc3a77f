#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/tensor.h"

namespace tessera::device {

/// A piece of planned memory and its owner.
struct NamedBytes {
  std::string name;  ///< "'y'", "scratch memory of Resize 'up'"
  size_t bytes = 0;
};

/// A limit on the memory that one process holds for all of its ranks: buffers, weights that are not mapped from files,
/// and outputs for as long as the caller holds them or the session keeps their memory; or on what a rank holds of its
/// device. Memory beyond the limit is refused before it is allocated. Ranks share one limit; several threads may call
/// its members.
class MemoryLimit {
 public:
  /// 0: what the machine has.
  explicit MemoryLimit(size_t bytes);
  /// Another kind of limit, which errors call by this name: "the device's memory".
  MemoryLimit(size_t bytes, std::string name);

  size_t bytes() const { return bytes_; }
  /// What is held now.
  size_t held() const { return held_->bytes; }
  /// Calls `listener` after each release, on the thread that releases, until the result goes. There is one listener at
  /// a time. It must not hold or release memory of this limit.
  [[nodiscard]] std::shared_ptr<const void> on_release(std::function<void()> listener);

  /// Throws a user error naming the tensor if it alone is more than the limit.
  void require(size_t bytes, std::string_view name) const;
  /// Adds this piece to the memory held from run to run, and throws if the sum exceeds the limit. The piece counts
  /// until the last copy of the result is gone, which may be after the limit itself. `what`: "the shard of 'w'".
  [[nodiscard]] std::shared_ptr<const void> hold(size_t bytes, std::string_view what) { return hold(bytes, what, 0); }
  /// Likewise, while `beside` more bytes are in use that are not held: arenas.
  [[nodiscard]] std::shared_ptr<const void> hold(size_t bytes, std::string_view what, size_t beside);
  /// The same, but null where hold() throws.
  [[nodiscard]] std::shared_ptr<const void> hold_if_there_is_room(size_t bytes, size_t beside);
  /// The tensor; its last copy releases the memory held for it.
  static Tensor released_with(Tensor tensor, std::shared_ptr<const void> held);

  /// Throws a user error that names the largest of `pieces` if the held bytes and `planned` more exceed the limit.
  /// `idle`: held bytes that would be released if needed.
  void require_plan(size_t planned, const std::function<std::vector<NamedBytes>()>& pieces, size_t idle = 0) const;

 private:
  /// What is held. Pieces may outlive the limit.
  struct Held {
    std::atomic<size_t> bytes = 0;
    std::atomic<bool> is_heard = false;  // whether there is a listener
    std::mutex mutex;                    // of the listener
    std::function<void()> listener;

    void release(size_t released);
    void listen(std::function<void()> to);
  };

  /// "4.1 GiB, which is more than the limit of 4.0 GiB"
  std::string excess(size_t bytes) const;

  size_t bytes_;
  std::string name_ = "the limit";
  std::string mend_ = "use smaller sizes or more ranks, or raise the limit (`memory_limit`)";
  std::shared_ptr<Held> held_ = std::make_shared<Held>();
};

}  // namespace tessera::device
