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

// What lies there was taken and given back; what has lain unused the longest leaves first.
struct TensorPool::Shelf {
  struct Piece {
    Block memory;
    size_t bytes = 0;
  };
  static constexpr size_t kMostPieces = 1024;  // a decoder has two outputs for each of its layers

  std::mutex mutex;
  std::vector<Piece> pieces;
  size_t idle = 0, out = 0, most_out = 0;  // bytes

  Shelf() { pieces.reserve(kMostPieces); }

  /// A piece that has `bytes` bytes, or a few more. Its memory is to be allocated if there is none: with room to grow
  /// where a tensor has just outgrown its piece, as each step of a decoder makes its cache longer.
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
    const Piece wanted{nullptr, small == pieces.end() ? bytes : with_room(bytes)};
    if (small != pieces.end()) drop(small);
    // Other sizes are wanted now: what lies here from before makes room for them, beyond what was once out at a time.
    out += wanted.bytes;
    most_out = std::max(most_out, out);
    while (idle + out > most_out && !pieces.empty()) drop(pieces.begin());
    return wanted;
  }

  void put_back(Piece piece) {
    std::lock_guard lock(mutex);
    if (pieces.size() == kMostPieces) drop(pieces.begin());
    idle += piece.bytes;
    out -= piece.bytes;
    pieces.push_back(std::move(piece));  // within what was reserved: a deleter must not throw
  }

  void drop(std::vector<Piece>::iterator piece) {
    idle -= piece->bytes;
    pieces.erase(piece);
  }
};

TensorPool::TensorPool(Allocate allocate) : allocate_(std::move(allocate)), shelf_(std::make_shared<Shelf>()) {}

Tensor TensorPool::take(DType dtype, Dims dims) {
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.bytes = bytes_of(dtype, count_of(dims));
  tensor.dims = std::move(dims);
  Shelf::Piece piece = shelf_->take(tensor.bytes);
  if (!piece.memory) piece.memory = allocate_(piece.bytes);
  std::byte* first = piece.memory.get();
  auto give_back = [shelf = std::weak_ptr(shelf_), piece = std::move(piece)](std::byte*) mutable {
    if (auto alive = shelf.lock()) alive->put_back(std::move(piece));
  };
  tensor.owner = std::shared_ptr<std::byte[]>(first, std::move(give_back));
  tensor.data = static_cast<const std::byte*>(tensor.owner.get());
  return tensor;
}

}  // namespace tessera::runtime
