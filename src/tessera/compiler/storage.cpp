#include "tessera/compiler/storage.h"

#include <algorithm>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/compiler/places.h"
#include "tessera/ir/glob.h"
#include "tessera/onnx/export_record.h"

namespace tessera::compiler {

spmd::Storage read_storage(const Graph& graph, const std::vector<AnnotationRequest>& requests, const Mesh& mesh,
                           const SharedStates* shared) {
  spmd::Storage storage = shared ? shared->storage_in(graph) : spmd::Storage();
  if (requests.empty()) return storage;
  const ExportRecord record(graph);
  std::vector<std::string_view> states;
  for (const Value* state : graph.values_of(ValueKind::state)) states.push_back(state->name);
  for (const AnnotationRequest& request : requests) {
    bool reached = false, fitted = false;
    for (const Value* state : graph.values_of(ValueKind::state)) {
      if (!record.matches(request.pattern, *state)) continue;
      reached = true;
      if (request.pattern != state->name && !request.fits(state->rank())) continue;
      Sharding sharding = parse_sharding(request.for_rank(state->rank()), state->shape(), mesh, state->name);
      if (!sharding.at.empty() || sharding.is_partial())
        fail("store", "'{}': storage cannot be partial or placed; name only the axes that split dimensions",
             request.pattern + "=" + request.sharding);
      fitted = true;
      storage.emplace(state, std::move(sharding));
    }
    if (!reached && !shared)
      fail("store", "'{}' matches no state or parameter of the model{} (`Inspection::weights` lists the parameters)",
           request.pattern, nearest_names(states, request.pattern));
    if (!fitted && !shared)
      fail("store",
           "'{}' matches states, but none with {}{}, as '{}' has entries; write one entry per "
           "dimension, or '...' for those that stay whole",
           request.pattern, counted(request.entries(), "dimension"), request.has_ellipsis() ? " or more" : "",
           request.sharding);
  }
  return storage;
}

spmd::Storage stored_anew(const spmd::Storage& storage, const std::vector<std::string>& keep_gathered) {
  spmd::Storage anew = storage;
  std::vector<std::string_view> names;
  for (const auto& [state, sharding] : storage) names.push_back(state->name);
  std::sort(names.begin(), names.end());
  for (const std::string& pattern : keep_gathered) {
    const size_t before = anew.size();
    std::erase_if(anew, [&](const auto& entry) { return glob_matches(pattern, entry.first->name); });
    const auto matches = [&](std::string_view name) { return glob_matches(pattern, name); };
    if (anew.size() == before && std::none_of(names.begin(), names.end(), matches))
      fail("store",
           "`keep_gathered`: '{}' matches no state or parameter that is stored split{}; add it to the storage first",
           pattern, nearest_names(names, pattern));
  }
  return anew;
}

}  // namespace tessera::compiler
