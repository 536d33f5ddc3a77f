#include "tessera/runtime/tensor_pool.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "tessera/ir/pages.h"

namespace tessera::runtime {

// What lies there was taken and given back; what has lain unused the longest leaves first.
struct TensorPool::Shelf {
  struct Piece {
    Pages memory;
    size_t bytes;
  };
  static constexpr size_t kMostPieces = 16;

  std::mutex mutex;
  std::vector<Piece> pieces;
  size_t idle = 0, out = 0, most_out = 0;  // bytes

  Shelf() { pieces.reserve(kMostPieces); }

  Pages take(size_t bytes) {
    std::lock_guard lock(mutex);
    for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece)
      if (piece->bytes == bytes) {
        Pages memory = std::move(piece->memory);
        idle -= bytes;
        out += bytes;
        pieces.erase(std::next(piece).base());
        return memory;
      }
    // Other sizes are wanted now: what lies here from before makes room for them, beyond what was once out at a time.
    out += bytes;
    most_out = std::max(most_out, out);
    while (idle + out > most_out && !pieces.empty()) drop_oldest();
    return nullptr;
  }

  void put_back(Pages memory, size_t bytes) {
    std::lock_guard lock(mutex);
    if (pieces.size() == kMostPieces) drop_oldest();
    pieces.push_back({std::move(memory), bytes});  // within what was reserved: a deleter must not throw
    idle += bytes;
    out -= bytes;
  }

  void drop_oldest() {
    idle -= pieces.front().bytes;
    pieces.erase(pieces.begin());
  }
};

TensorPool::TensorPool() : shelf_(std::make_shared<Shelf>()) {}

Tensor TensorPool::take(DType dtype, Dims dims) {
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.bytes = bytes_of(dtype, count_of(dims));
  tensor.dims = std::move(dims);
  Pages memory = shelf_->take(tensor.bytes);
  if (!memory) memory = allocate_pages(tensor.bytes, "an output");
  const FreePages free_pages = memory.get_deleter();
  auto give_back = [shelf = std::weak_ptr(shelf_), free_pages](std::byte* returned) {
    Pages pages(returned, free_pages);
    if (auto alive = shelf.lock()) alive->put_back(std::move(pages), free_pages.bytes);
  };
  tensor.owner = std::shared_ptr<std::byte[]>(memory.release(), give_back);
  tensor.data = static_cast<const std::byte*>(tensor.owner.get());
  return tensor;
}

}  // namespace tessera::runtime
