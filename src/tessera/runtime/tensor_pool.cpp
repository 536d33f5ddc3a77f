#include "tessera/runtime/tensor_pool.h"

#include <algorithm>
#include <mutex>
#include <vector>

namespace tessera::runtime {

namespace {

using Block = std::shared_ptr<std::byte[]>;

size_t with_room(size_t bytes) {
  return bytes + bytes / 8;
}

}  // namespace

// Returned memory that is free for reuse; the least recently used piece leaves first.
struct TensorPool::Shelf {
  struct Piece {
    std::shared_ptr<const void> held;  // in the limit; released after the memory
    Block memory;
    size_t bytes = 0;
  };
  static constexpr size_t kMostPieces = 1024;  // a decoder has two outputs for each of its layers

  std::mutex mutex;
  std::vector<Piece> pieces;
  size_t idle = 0, out = 0, most_out = 0;  // bytes

  Shelf() { pieces.reserve(kMostPieces); }

  /// A piece with `bytes` bytes or a few more. If there is none, the caller allocates it, with room to grow if a tensor
  /// has just outgrown its piece, as a decoder's cache does at each step.
  Piece take(size_t bytes) {
    std::lock_guard lock(mutex);
    auto fits = [&](const Piece& piece) { return piece.bytes >= bytes && piece.bytes <= with_room(bytes); };
    auto outgrown = [&](const Piece& piece) { return piece.bytes < bytes && bytes <= with_room(piece.bytes); };
    auto latest = std::find_if(pieces.rbegin(), pieces.rend(), fits);
    if (latest != pieces.rend()) {
      Piece piece = std::move(*latest);
      pieces.erase(std::next(latest).base());
      idle -= piece.bytes;
      out += piece.bytes;
      return piece;
    }
    auto small = std::find_if(pieces.begin(), pieces.end(), outgrown);
    const Piece wanted{nullptr, nullptr, small == pieces.end() ? bytes : with_room(bytes)};
    if (small != pieces.end()) drop(small);
    // The sizes have changed: old pieces make room for new ones, beyond the most bytes that were ever out at once.
    out += wanted.bytes;
    while (idle + out > std::max(most_out, out) && !pieces.empty()) drop(pieces.begin());
    return wanted;
  }

  /// The requested piece has been allocated.
  void taken() {
    std::lock_guard lock(mutex);
    most_out = std::max(most_out, out);
  }

  /// The requested piece cannot be allocated.
  void give_up(size_t bytes) {
    std::lock_guard lock(mutex);
    out -= bytes;
  }

  /// Drops a piece; false if there was none.
  bool drop_one() {
    std::lock_guard lock(mutex);
    if (pieces.empty()) return false;
    drop(pieces.begin());
    return true;
  }

  void put_back(Piece piece) {
    std::lock_guard lock(mutex);
    if (pieces.size() == kMostPieces) drop(pieces.begin());
    idle += piece.bytes;
    out -= piece.bytes;
    pieces.push_back(std::move(piece));  // within the reserved capacity, since a deleter must not throw
  }

  void drop(std::vector<Piece>::iterator piece) {
    idle -= piece->bytes;
    pieces.erase(piece);
  }
};

TensorPool::TensorPool(device::MemoryLimit& limit, Allocate allocate)
    : limit_(limit), allocate_(std::move(allocate)), shelf_(std::make_shared<Shelf>()) {}

size_t TensorPool::idle() const {
  std::lock_guard lock(shelf_->mutex);
  return shelf_->idle;
}

Tensor TensorPool::take(DType dtype, Dims dims, std::string_view what, size_t beside) {
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.bytes = bytes_of(dtype, count_of(dims));
  tensor.dims = std::move(dims);
  Shelf::Piece piece = shelf_->take(tensor.bytes);
  try {
    while (!piece.held && !(piece.held = limit_.hold_if_there_is_room(piece.bytes, beside))) {
      if (shelf_->drop_one()) continue;
      shelf_->give_up(piece.bytes - tensor.bytes);
      piece.bytes = tensor.bytes;  // without room to grow
      piece.held = limit_.hold(piece.bytes, what, beside);
    }
    if (!piece.memory) piece.memory = allocate_(piece.bytes);
    // Even if a piece was found: the remaining pieces make room for the arenas.
    while (!limit_.hold_if_there_is_room(0, beside) && shelf_->drop_one()) {
    }
    shelf_->taken();
  } catch (...) {
    shelf_->give_up(piece.bytes);
    throw;
  }
  std::byte* first = piece.memory.get();
  auto give_back = [shelf = std::weak_ptr(shelf_), piece = std::move(piece)](std::byte*) mutable {
    if (auto alive = shelf.lock()) alive->put_back(std::move(piece));
  };
  tensor.owner = std::shared_ptr<std::byte[]>(first, std::move(give_back));
  tensor.data = tensor.writable = first;
  return tensor;
}

}  // namespace tessera::runtime
