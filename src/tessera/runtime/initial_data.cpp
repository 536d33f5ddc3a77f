#include "tessera/runtime/initial_data.h"

#include <cstring>

#include "tessera/base/error.h"
#include "tessera/io/mapped_file.h"
#include "tessera/ir/aligned.h"
#include "tessera/ir/on_demand.h"
#include "tessera/mesh/byte_box.h"

namespace tessera::runtime {
Dims InitialData::dims_of(const Value* state) const {
  Dims dims;
  for (const Expr& extent : state->shape()) dims.push_back(bind_rank(extent, mesh_, coordinates_).evaluate(no_symbols));
  return dims;
}

std::optional<Tensor> InitialData::view(const RankPrograms& programs, const Value* state) const {
  const Tensor* given = programs.shard_of(rank_, state->name);
  const spmd::Program& program = programs.of(rank_);
  Tensor shard = given ? *given : program.initial.at(state);
  if (maker_of(shard)) return std::nullopt;
  const Sharding& sharding = program.placement(state).sharding;
  if (!given && !sharding.is_whole()) {
    const auto part = byte_box(box_of(sharding, program.mesh, coordinates_, no_symbols), shard.dtype);
    if (!part)
      fail("load", "'{}' has elements of {} bits and cannot be split within a byte; keep it whole", state->name,
           bits_of(shard.dtype));
    if (!part->box.contiguous()) return std::nullopt;
    shard.dims = dims_of(state);
    shard.bytes = static_cast<size_t>(part->box.count()) * part->unit;
    if (shard.data) shard.data += static_cast<size_t>(part->box.first()) * part->unit;
  }
  return is_aligned(shard) ? std::optional(shard) : std::nullopt;
}

void InitialData::require(const RankPrograms& programs, const Value* state) const {
  const Tensor* given = programs.shard_of(rank_, state->name);
  const Tensor& data = given ? *given : programs.of(rank_).initial.at(state);
  if (!data.data && data.bytes > 0 && !maker_of(data)) fail("load", "the data of '{}' are missing", state->name);
}

void InitialData::copy(const RankPrograms& programs, const Value* state, void* to) const {
  require(programs, state);
  if (const std::optional<Tensor> whole = view(programs, state)) {
    if (whole->bytes > 0) std::memcpy(to, whole->data, whole->bytes);
    return MappedFile::let_go(*whole, 0, whole->count());
  }
  const Tensor* given = programs.shard_of(rank_, state->name);
  if (given) {
    std::memcpy(to, given->data, given->bytes);
    return MappedFile::let_go(*given, 0, given->count());
  }
  const spmd::Program& program = programs.of(rank_);
  const Tensor& whole = program.initial.at(state);
  const Box box = box_of(program.placement(state).sharding, program.mesh, coordinates_, no_symbols);
  if (const ElementMaker* maker = maker_of(whole)) {
    // Each rank makes its own elements only.
    auto* next = static_cast<std::byte*>(to);
    for_each_piece(box, 1, [&](const Box& run) {
      maker->make(run.first(), run.count(), next);
      next += bytes_of(state->dtype(), run.count());
    });
  } else {
    copy_from_whole(to, whole.data, *byte_box(box, whole.dtype));
  }
  if (box.count() == 0) return;
  int64_t last = 0;
  for (size_t d = 0; d < box.dims.size(); ++d) last = last * box.dims[d] + box.offsets[d] + box.extents[d] - 1;
  MappedFile::let_go(whole, box.first(), last + 1 - box.first());
}

}  // namespace tessera::runtime
