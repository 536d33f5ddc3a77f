#include "tessera/runtime/output_parts.h"

#include <algorithm>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/keep.h"

namespace tessera::runtime {
namespace {

/// The place of a rank's part within the whole value. The part's bytes are dense, in the order of its elements.
struct PartOfWhole {
  const Value* value = nullptr;
  Box box;
  size_t element = 1;  // bytes

  PartOfWhole(const RankPrograms& programs, int rank, const std::string& name, const Symbols& symbols) {
    const spmd::Program& program = programs.of(rank);
    value = program.graph->find(name);
    if (!value) return;  // it lives elsewhere
    const std::vector<int64_t> coordinates = program.mesh.coordinates(rank);
    if (!spmd::writes_part(program, value, coordinates)) return;
    CopiedBox copied(spmd::held_part(program, value, coordinates, symbols), value->dtype());
    box = std::move(copied.box);
    element = copied.unit;
    written = box.count() > 0;
  }

  bool written = false;
  size_t bytes() const { return static_cast<size_t>(box.count()) * element; }
  size_t offset() const { return static_cast<size_t>(box.first()) * element; }
};

}  // namespace

void bring_parts(RankState& rank, const RankPrograms& programs, const Symbols& symbols, std::span<const int> here,
                 const std::string& value, void* whole) {
  const int size = static_cast<int>(programs.mesh().size());
  if (static_cast<int>(here.size()) == size) return;
  auto is_here = [&](int other) { return std::find(here.begin(), here.end(), other) != here.end(); };
  KeptIfThrown<std::vector<std::byte>> room;  // a library may still write to it
  std::vector<std::byte>& dense = *room;
  comm::Operation operation{.dtype = DType::uint8, .label = value};
  auto buffer_of = [&](const PartOfWhole& part) {
    operation.count = static_cast<int64_t>(part.bytes());
    if (part.box.contiguous()) return static_cast<std::byte*>(whole) + part.offset();
    dense.resize(part.bytes());
    return dense.data();
  };
  if (!is_here(0)) {
    const PartOfWhole part(programs, rank.rank(), value, symbols);
    if (!part.written) return;
    operation.kind = comm::Kind::send;
    operation.to = 0;
    std::byte* buffer = buffer_of(part);
    if (buffer == dense.data()) copy_from_whole(buffer, whole, part.box, part.element);
    operation.in = buffer;
    rank.communicators().everyone().run(operation);
  } else if (rank.rank() == 0) {
    operation.kind = comm::Kind::recv;
    for (int other = 0; other < size; ++other) {
      if (is_here(other)) continue;
      const PartOfWhole part(programs, other, value, symbols);
      if (!part.written) continue;
      operation.from = other;
      std::byte* buffer = buffer_of(part);
      operation.out = buffer;
      rank.communicators().everyone().run(operation);
      if (buffer == dense.data()) copy_to_whole(whole, buffer, part.box, part.element);
    }
  }
}

}  // namespace tessera::runtime
