#include "tessera/runtime/tensor_pool.h"

#include <algorithm>
#include <mutex>
#include <vector>

namespace tessera::runtime {

namespace {

using Block = std::shared_ptr<std::byte[]>;

}  // namespace

// What lies there was taken and given back; what has lain unused the longest leaves first.
struct TensorPool::Shelf {
  struct Piece {
    Block memory;
    size_t bytes;
  };
  static constexpr size_t kMostPieces = 16;

  std::mutex mutex;
  std::vector<Piece> pieces;
  size_t idle = 0, out = 0, most_out = 0;  // bytes

  Shelf() { pieces.reserve(kMostPieces); }

  Block take(size_t bytes) {
    std::lock_guard lock(mutex);
    for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece)
      if (piece->bytes == bytes) {
        Block memory = std::move(piece->memory);
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

  void put_back(Block memory, size_t bytes) {
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

TensorPool::TensorPool(Allocate allocate) : allocate_(std::move(allocate)), shelf_(std::make_shared<Shelf>()) {}

Tensor TensorPool::take(DType dtype, Dims dims) {
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.bytes = bytes_of(dtype, count_of(dims));
  tensor.dims = std::move(dims);
  Block memory = shelf_->take(tensor.bytes);
  if (!memory) memory = allocate_(tensor.bytes);
  std::byte* first = memory.get();
  auto give_back = [shelf = std::weak_ptr(shelf_), memory = std::move(memory),
                    bytes = tensor.bytes](std::byte*) mutable {
    if (auto alive = shelf.lock()) alive->put_back(std::move(memory), bytes);
  };
  tensor.owner = std::shared_ptr<std::byte[]>(first, std::move(give_back));
  tensor.data = static_cast<const std::byte*>(tensor.owner.get());
  return tensor;
}

}  // namespace tessera::runtime
