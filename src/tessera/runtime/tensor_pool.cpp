#include "tessera/runtime/tensor_pool.h"

#include <cstdlib>
#include <mutex>
#include <vector>

#include "tessera/runtime/pages.h"

namespace tessera::runtime {

// What lies there was taken and given back; what has lain unused the longest leaves first.
struct TensorPool::Shelf {
  struct Piece {
    void* memory;
    size_t bytes;
  };
  static constexpr size_t kMostPieces = 16;

  std::mutex mutex;
  std::vector<Piece> pieces;
  size_t idle = 0;  // bytes

  Shelf() { pieces.reserve(kMostPieces); }

  ~Shelf() {
    for (const Piece& piece : pieces) std::free(piece.memory);
  }

  void* take(size_t bytes) {
    std::lock_guard lock(mutex);
    for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece)
      if (piece->bytes == bytes) {
        void* memory = piece->memory;
        idle -= bytes;
        pieces.erase(std::next(piece).base());
        return memory;
      }
    // Other sizes are wanted now: what lies here from before makes room for them.
    while (idle > bytes) drop_oldest();
    return nullptr;
  }

  void put_back(void* memory, size_t bytes) {
    std::lock_guard lock(mutex);
    if (pieces.size() == kMostPieces) drop_oldest();
    pieces.push_back({memory, bytes});  // within what was reserved: a deleter must not throw
    idle += bytes;
  }

  void drop_oldest() {
    idle -= pieces.front().bytes;
    std::free(pieces.front().memory);
    pieces.erase(pieces.begin());
  }
};

TensorPool::TensorPool() : shelf_(std::make_shared<Shelf>()) {}

Tensor TensorPool::take(DType dtype, Dims dims) {
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.bytes = bytes_of(dtype, count_of(dims));
  tensor.dims = std::move(dims);
  void* memory = shelf_->take(tensor.bytes);
  if (!memory) memory = allocate_pages(tensor.bytes, "an output");
  tensor.owner = std::shared_ptr<void>(memory, [shelf = std::weak_ptr(shelf_), bytes = tensor.bytes](void* returned) {
    if (auto alive = shelf.lock())
      alive->put_back(returned, bytes);
    else
      std::free(returned);
  });
  tensor.data = static_cast<const std::byte*>(memory);
  return tensor;
}

}  // namespace tessera::runtime
