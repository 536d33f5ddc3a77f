#include "tessera/runtime/output_parts.h"

#include <algorithm>
#include <memory>

#include "tessera/base/error.h"
#include "tessera/base/keep.h"

namespace tessera::runtime {
namespace {

bool is_among(std::span<const int> ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace

std::optional<OutputPart> part_of(const RankPrograms& programs, int rank, const std::string& name,
                                  const Symbols& symbols) {
  const spmd::Program& program = programs.of(rank);
  const Value* value = program.graph->find(name);
  if (!value) return std::nullopt;  // it lives elsewhere
  const std::vector<int64_t> coordinates = program.mesh.coordinates(rank);
  if (!spmd::writes_part(program, value, coordinates)) return std::nullopt;
  CopiedBox copied(spmd::held_part(program, value, coordinates, symbols), value->dtype());
  if (copied.box.count() == 0) return std::nullopt;
  return OutputPart{rank, std::move(copied.box), copied.unit};
}

std::vector<OutputPart> received_parts(const RankPrograms& programs, std::span<const int> here,
                                       const std::string& value, const Symbols& symbols) {
  std::vector<OutputPart> parts;
  const auto size = static_cast<int>(programs.mesh().size());
  if (static_cast<int>(here.size()) == size) return parts;
  for (int rank = 0; rank < size; ++rank) {
    if (is_among(here, rank)) continue;
    if (auto part = part_of(programs, rank, value, symbols)) parts.push_back(std::move(*part));
  }
  return parts;
}

void bring_parts(RankState& rank, const RankPrograms& programs, const Symbols& symbols, std::span<const int> here,
                 const std::string& value, void* whole, const void* own) {
  KeptIfThrown<std::unique_ptr<std::byte[]>> dense;  // a library may still write to it
  size_t dense_bytes = 0;
  comm::Operation operation{.dtype = DType::uint8, .label = value};
  auto buffer_of = [&](const OutputPart& part) {
    operation.count = static_cast<int64_t>(part.bytes());
    if (part.is_one_piece()) return static_cast<std::byte*>(whole) + part.offset();
    if (part.bytes() > dense_bytes) *dense = std::make_unique_for_overwrite<std::byte[]>(dense_bytes = part.bytes());
    return (*dense).get();
  };
  if (!is_among(here, 0)) {
    const std::optional<OutputPart> part = part_of(programs, rank.rank(), value, symbols);
    if (!part) return;
    operation.kind = comm::Kind::send;
    operation.to = 0;
    operation.count = static_cast<int64_t>(part->bytes());
    operation.in = own ? own : buffer_of(*part);
    if (!own && !part->is_one_piece()) copy_from_whole((*dense).get(), whole, part->box, part->element);
    rank.communicators().everyone().run(operation);
  } else if (rank.rank() == 0) {
    operation.kind = comm::Kind::recv;
    for (const OutputPart& part : received_parts(programs, here, value, symbols)) {
      operation.from = part.rank;
      std::byte* buffer = buffer_of(part);
      operation.out = buffer;
      rank.communicators().everyone().run(operation);
      if (!part.is_one_piece()) copy_to_whole(whole, buffer, part.box, part.element);
    }
  }
}

}  // namespace tessera::runtime
