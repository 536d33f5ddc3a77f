#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/tensor.h"

namespace tessera::runtime {

/// A piece of planned memory and whose it is.
struct NamedBytes {
  std::string name;  ///< "'y'", "scratch memory of Resize 'up'"
  size_t bytes = 0;
};

/// What one process may hold for all ranks in it: buffers, weights that are not mapped from files, outputs for as long
/// as somebody has them or the session keeps their memory. Whatever exceeds it is refused before it is allocated. Ranks
/// share one; its members may be called from several threads.
class MemoryLimit {
 public:
  /// 0: what the machine has.
  explicit MemoryLimit(size_t bytes);

  size_t bytes() const { return bytes_; }

  /// Throws a user error naming the tensor if it alone is more than the limit.
  void require(size_t bytes, std::string_view name) const;
  /// The same of all that is held from run to run, to which this piece is added: it counts until the last copy of what
  /// is returned is gone, which may be after the limit. `what`: "the shard of 'w'".
  [[nodiscard]] std::shared_ptr<const void> hold(size_t bytes, std::string_view what) { return hold(bytes, what, 0); }
  /// Likewise where so many bytes `beside` are in use that nobody holds: arenas.
  [[nodiscard]] std::shared_ptr<const void> hold(size_t bytes, std::string_view what, size_t beside);
  /// The same, but null where hold() throws.
  [[nodiscard]] std::shared_ptr<const void> hold_if_there_is_room(size_t bytes, size_t beside);
  /// The tensor, whose last copy lets go of what was held for it.
  static Tensor released_with(Tensor tensor, std::shared_ptr<const void> held);

  /// Throws a user error that names the largest of `pieces` if `planned` more bytes than are held exceed the limit.
  /// `idle`: bytes that are held, and would be let go of where they are wanted.
  void require_plan(size_t planned, const std::function<std::vector<NamedBytes>()>& pieces, size_t idle = 0) const;

 private:
  size_t bytes_;
  std::shared_ptr<std::atomic<size_t>> held_ = std::make_shared<std::atomic<size_t>>(0);
};

}  // namespace tessera::runtime
