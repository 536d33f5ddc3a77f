#pragma once

#include <cstddef>
#include <functional>

#include "tessera/ir/tensor.h"
#include "tessera/mesh/sharding.h"

namespace tessera {

/// A rectangular region of a dense row-major array of extents `dims`.
struct Box {
  Dims dims;
  Dims offsets;
  Dims extents;

  int64_t count() const { return count_of(extents); }
  /// Whether its elements are consecutive, and the offset of the first.
  bool contiguous() const;
  int64_t first() const;
};

/// A region and the bytes of its unit: an element, or a byte that holds several elements. It must not cut through a
/// byte.
struct CopiedBox {
  Box box;
  size_t unit = 1;

  CopiedBox() = default;
  CopiedBox(Box of, DType dtype);
};

using SymbolLookup = Expr::Lookup;

/// The region of a tensor that the rank at `coordinates` holds, with one dimension for each part (a shard of 3·4{tp} is
/// the box [3, 2] of [3, 4]).
Box box_of(const Sharding& sharding, const Mesh& mesh, const std::vector<int64_t>& coordinates,
           const SymbolLookup& symbols);

/// Copies a box's elements between a whole array and a dense shard, or between boxes of equal extents of two arrays.
void copy_box(void* to, const Box& to_box, const void* from, const Box& from_box, size_t element_bytes);
void copy_from_whole(void* shard, const void* whole, const Box& box, size_t element_bytes);
void copy_to_whole(void* whole, const void* shard, const Box& box, size_t element_bytes);
void copy_from_whole(void* shard, const void* whole, const CopiedBox& part);
void copy_to_whole(void* whole, const void* shard, const CopiedBox& part);

/// Visits pieces of a box, in the order of its elements; each has at most `most` (≥ 1) elements or is contiguous. Dense
/// copies of the pieces in order form a dense copy of the box.
void for_each_piece(const Box& box, int64_t most, const std::function<void(const Box&)>& visit);

}  // namespace tessera
