#include "tessera/runtime/weight_names.h"

#include <fmt/ranges.h>

#include "tessera/ir/hash.h"
#include "tessera/ir/on_demand.h"
#include "tessera/runtime/init.h"
#include "tessera/runtime/initial_data.h"

namespace tessera::runtime {
namespace {

std::string text_of(const Box& box) {
  return fmt::format("[{}] at [{}] of [{}]", fmt::join(box.extents, ","), fmt::join(box.offsets, ","),
                     fmt::join(box.dims, ","));
}

}  // namespace

const WeightPart& WeightNames::part_of(const RankPrograms& programs, const Value* state) {
  if (const auto known = parts_.find(state); known != parts_.end()) return known->second;
  const spmd::Program& program = programs.of(rank_);
  if (program.derived.contains(state)) {
    name_derived(programs);
    return parts_.at(state);
  }
  WeightPart part{.name = state->name,
                  .type = fmt::format("{} {}", name_of(state->dtype()), to_string(state->shape()))};
  if (const Tensor* cut = programs.shard_of(rank_, state->name)) {
    part.origin = origin_of(*cut);
  } else {
    part.origin = origin_of(program.initial.at(state));
    const Sharding& sharding = program.placement(state).sharding;
    if (!sharding.is_whole()) part.where = text_of(box_of(sharding, mesh_, coordinates_, no_symbols));
  }
  return parts_.emplace(state, std::move(part)).first->second;
}

void WeightNames::name_derived(const RankPrograms& programs) {
  const auto numbers = derivations(programs.of(rank_), coordinates_, [&](const Value* state) {
    Hash hash;
    hash.add(part_of(programs, state).str());
    return hash.value();
  });
  for (const auto& [state, number] : numbers)
    parts_.emplace(state, WeightPart{.name = state->name, .where = fmt::format("made by {:016x}", number)});
}

WeightForm WeightNames::form_of(const RankPrograms& programs, const bind::WeightToPack& wanted) {
  WeightForm form{part_of(programs, wanted.weight), wanted.key};
  for (const Value* beside : wanted.beside)
    if (beside)
      form.form +=
          "; " + (beside->kind == ValueKind::constant ? fmt::format("{}", static_cast<const void*>(beside->data.data))
                                                      : part_of(programs, beside).str());
  return form;
}

std::map<WeightForm, size_t> WeightNames::renamed(const std::map<WeightForm, size_t>& other,
                                                  const RankPrograms& programs) {
  std::map<WeightForm, size_t> own;
  for (const auto& [like, bytes] : other) {
    WeightForm form = like;
    if (const Value* state = programs.of(rank_).graph->find(form.part.name)) form.part = part_of(programs, state);
    own[std::move(form)] += bytes;
  }
  return own;
}

std::set<WeightPart> WeightNames::forget(const RankPrograms& programs) {
  for (const auto& program : programs.programs)
    for (const auto& value : program->graph->values()) parts_.erase(value.get());
  std::set<WeightPart> used;
  for (const auto& [state, part] : parts_) used.insert(part);
  return used;
}

}  // namespace tessera::runtime
