#include "tessera/mesh/box.h"

#include <algorithm>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/mesh/byte_box.h"

namespace tessera {

bool Box::contiguous() const {
  size_t d = 0;
  while (d < dims.size() && extents[d] == 1) ++d;
  for (size_t rest = d + 1; rest < dims.size(); ++rest)
    if (extents[rest] != dims[rest]) return count() == 0;
  return true;
}

int64_t Box::first() const {
  int64_t index = 0;
  for (size_t d = 0; d < dims.size(); ++d) index = index * dims[d] + offsets[d];
  return index;
}

Box box_of(const Sharding& sharding, const Mesh& mesh, const std::vector<int64_t>& coordinates,
           const SymbolLookup& symbols) {
  auto lookup = [&](std::string_view name) -> std::optional<int64_t> {
    if (!name.starts_with('@')) return symbols(name);
    auto axis = mesh.find(name.substr(1));
    return axis ? std::optional(coordinates[*axis]) : std::nullopt;
  };
  Box box;
  for (const DimSharding& dim : sharding.dims)
    for (const Part& part : dim.parts) {
      box.dims.push_back(part.size.evaluate(lookup));
      box.offsets.push_back(local_offset(part, mesh).evaluate(lookup));
      box.extents.push_back(local_extent(part, mesh).evaluate(lookup));
    }
  return box;
}

void copy_box(void* to, const Box& to_box, const void* from, const Box& from_box, size_t element_bytes) {
  check(to_box.extents == from_box.extents, "boxes that are copied have the same extents");
  if (from_box.count() == 0) return;
  // Trailing dimensions that both sides hold whole form one run with the dimension before them.
  size_t rank = from_box.dims.size();
  int64_t run = 1;
  while (rank > 0) {
    --rank;
    run *= from_box.extents[rank];
    if (from_box.extents[rank] != from_box.dims[rank] || to_box.extents[rank] != to_box.dims[rank]) break;
  }
  auto strides = [](const Box& box) {
    Dims result(box.dims.size(), 1);
    for (size_t d = box.dims.size(); d-- > 1;) result[d - 1] = result[d] * box.dims[d];
    return result;
  };
  Dims to_strides = strides(to_box), from_strides = strides(from_box), at(rank, 0);
  int64_t to_at = to_box.first(), from_at = from_box.first();
  auto* target = static_cast<std::byte*>(to);
  const auto* source = static_cast<const std::byte*>(from);
  while (true) {
    std::memcpy(target + to_at * element_bytes, source + from_at * element_bytes, run * element_bytes);
    size_t d = rank;
    while (d > 0) {
      --d;
      to_at += to_strides[d];
      from_at += from_strides[d];
      if (++at[d] < from_box.extents[d]) break;
      to_at -= to_strides[d] * at[d];
      from_at -= from_strides[d] * at[d];
      at[d] = 0;
      if (d == 0) return;
    }
    if (rank == 0) return;
  }
}

void for_each_piece(const Box& box, int64_t most, const std::function<void(const Box&)>& visit) {
  if (box.count() == 0) return;
  if (box.contiguous() || box.count() <= most) return visit(box);
  size_t d = 0;
  while (box.extents[d] == 1) ++d;
  int64_t slab = std::max<int64_t>(1, most / (box.count() / box.extents[d]));
  for (int64_t at = 0; at < box.extents[d]; at += slab) {
    Box piece = box;
    piece.offsets[d] += at;
    piece.extents[d] = std::min(slab, box.extents[d] - at);
    for_each_piece(piece, most, visit);
  }
}

namespace {
Box dense(const Box& box) {
  return {box.extents, Dims(box.extents.size(), 0), box.extents};
}
}  // namespace

std::optional<CopiedBox> byte_box(const Box& box, DType dtype) {
  const int bits = bits_of(dtype);
  CopiedBox copied;
  copied.box = box;
  if (bits % 8 == 0) {
    copied.unit = static_cast<size_t>(bits) / 8;
    return copied;
  }
  if (box.count() == 0 || box.count() == count_of(box.dims)) {
    const Dims bytes = {static_cast<int64_t>(bytes_of(dtype, box.count()))};
    copied.box = {bytes, {0}, bytes};
    return copied;
  }
  // Whole dimensions at the end are merged with the dimension before them.
  Dims &dims = copied.box.dims, &offsets = copied.box.offsets, &extents = copied.box.extents;
  const auto fills = [bits](int64_t elements) { return elements * bits % 8 == 0; };
  while (!fills(dims.back()) || !fills(offsets.back()) || !fills(extents.back())) {
    if (dims.size() == 1 || extents.back() != dims.back()) return std::nullopt;
    const int64_t last = dims.back();
    for (Dims* numbers : {&dims, &offsets, &extents}) {
      numbers->pop_back();
      numbers->back() *= last;
    }
  }
  for (Dims* numbers : {&dims, &offsets, &extents}) numbers->back() = numbers->back() * bits / 8;
  return copied;
}

CopiedBox::CopiedBox(Box of, DType dtype) {
  auto copied = byte_box(of, dtype);
  check(copied.has_value(), "a region of elements smaller than a byte consists of whole bytes");
  *this = std::move(*copied);
}

void copy_from_whole(void* shard, const void* whole, const Box& box, size_t element_bytes) {
  copy_box(shard, dense(box), whole, box, element_bytes);
}

void copy_to_whole(void* whole, const void* shard, const Box& box, size_t element_bytes) {
  copy_box(whole, box, shard, dense(box), element_bytes);
}

void copy_from_whole(void* shard, const void* whole, const CopiedBox& part) {
  copy_from_whole(shard, whole, part.box, part.unit);
}

void copy_to_whole(void* whole, const void* shard, const CopiedBox& part) {
  copy_to_whole(whole, shard, part.box, part.unit);
}

}  // namespace tessera
