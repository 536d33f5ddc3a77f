#include "tessera/compiler/shared_states.h"

#include <cstring>

#include "tessera/base/error.h"
#include "tessera/compiler/compile.h"
#include "tessera/ir/on_demand.h"

namespace tessera::compiler {
namespace {

const std::string& parameter_of(const spmd::Placement& placement) {
  return placement.origin ? placement.origin->name : placement.name;
}

}  // namespace

SharedStates::SharedStates(const spmd::Program& first) : first_(first) {
  for (const Value* state : first.graph->values_of(ValueKind::state)) {
    if (first.derived.contains(state)) continue;
    const spmd::Placement& placement = first.placement(state);
    changes_.emplace(parameter_of(placement), state->changing);
    if (!state->changing) continue;
    changing_.emplace(placement.name, &placement);
    if (!placement.origin) undivided_.insert(placement.name);
  }
}

spmd::Storage SharedStates::storage_in(const Graph& graph) const {
  spmd::Storage storage;
  for (const Value* state : graph.values_of(ValueKind::state)) {
    const auto known = state->changing ? changing_.find(state->name) : changing_.end();
    if (known == changing_.end() || known->second->global.shape != state->type.shape) continue;
    storage.emplace(state, known->second->sharding);
  }
  return storage;
}

void SharedStates::require_alike(const spmd::Program& other) const {
  for (const Value* state : other.graph->values_of(ValueKind::state)) {
    if (other.derived.contains(state)) continue;
    const spmd::Placement& placement = other.placement(state);
    const auto known = changes_.find(parameter_of(placement));
    if (known == changes_.end()) continue;
    if (known->second != state->changing)
      fail("state",
           "the state '{}' changes in one of the programs that share it, but not in the other; name it as one that "
           "changes in both (`states`, Model::with_states)",
           known->first);
    if (!state->changing) continue;
    const auto same = changing_.find(placement.name);
    if (same == changing_.end() || same->second->origin != placement.origin)
      fail("state",
           "the programs that share the state '{}' hold it in different pieces; name it in an annotation or `storage`, "
           "so "
           "that it stays whole",
           known->first);
    require_alike(*same->second, placement);
  }
}

void SharedStates::require_alike(const spmd::Placement& own, const spmd::Placement& other) const {
  const auto text = [&](const spmd::Placement& placement) {
    return fmt::format("{} {} {}", name_of(placement.global.dtype), to_string(*placement.global.shape),
                       placement.sharding.str(first_.mesh));
  };
  if (own.global == other.global && own.sharding == other.sharding) return;
  fail("state",
       "the programs that share the state '{}' hold it in different ways, one as {}, the other as {}; place and store "
       "it in the same way in both (`places`, `storage`)",
       own.name, text(own), text(other));
}

bool names_rewritten_state(const OnnxModel& model, const OnnxModel& rewritten, const CompileOptions& options) {
  std::set<std::string_view> gone;
  for (const Value* state : rewritten.graph->values_of(ValueKind::state)) {
    if (state->origin) gone.insert(state->origin->name);
    gone.insert(state->rows.begin(), state->rows.end());
  }
  if (gone.empty()) return false;
  if (options.sharing) {
    const SharedStates shared(*options.sharing);
    for (const std::string& name : shared.undivided())
      if (gone.contains(name)) return true;
  }
  for (const Value* state : model.graph->values_of(ValueKind::state))
    for (const AnnotationRequest& request : options.storage)
      if (gone.contains(state->name) && request.keeps_whole(*state)) return true;
  return false;
}

void share_data(spmd::Program& program, const spmd::Program& like) {
  std::map<std::string_view, const Tensor*> known;
  for (const auto& [state, data] : like.initial) known[state->name] = &data;
  for (auto& [state, data] : program.initial) {
    auto other = known.find(state->name);
    if (other == known.end() || other->second->dtype != data.dtype || other->second->dims != data.dims) continue;
    const Tensor& shared = *other->second;
    // Sources with the same identity make the same elements.
    if (maker_of(data) && maker_of(shared) && origin_of(data) == origin_of(shared)) {
      data = shared;
      continue;
    }
    const Tensor *own = bytes_behind(data), *there = bytes_behind(shared);
    if (!own || !there || own->dtype != there->dtype || own->bytes != there->bytes) continue;
    if (own->data == there->data || std::memcmp(own->data, there->data, own->bytes) == 0) data = shared;
  }
}

}  // namespace tessera::compiler
