#include "tessera/program_io/lone_model.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/mesh/sharding.h"
#include "tessera/onnx/metadata.h"
#include "tessera/program_io/rank_model.h"

namespace tessera::program_io {
namespace {

// The whole tensor that the value states to be a share of.
std::optional<TensorType> global_type(const Value& value) {
  return read_global_type(get_metadata(value, kGlobalKey).value_or(""));
}

// Whether the sharding names an axis, on any mesh, or cannot be read.
bool divides(const std::string& sharding, const Value& value) {
  const auto whole = global_type(value);
  if (!whole) return true;
  try {
    return !parse_sharding(sharding, *whole->shape, Mesh(), value.name).is_replicated();
  } catch (const Error&) {
    return true;  // this mesh has no axes
  }
}

// Whether these are the extents of the rank's share.
bool is_share_of(const Value& state, const std::string& sharding, const Mesh& mesh, int64_t rank) {
  const auto whole = global_type(state);
  if (!whole || whole->shape->size() != state.data.dims.size()) return false;
  const Sharding layout = parse_sharding(sharding, *whole->shape, mesh, state.name);
  if (!layout.lives_on(mesh, mesh.coordinates(rank))) return false;
  const Shape local = local_shape(layout, mesh);
  return std::equal(local.begin(), local.end(), state.data.dims.begin(), [&](const Expr& extent, int64_t dim) {
    return bind_rank(extent, mesh, mesh.coordinates(rank)).is(dim);
  });
}

// The sharding that a value states, if it splits the tensor.
std::optional<std::string> share_of(const Value& value) {
  auto sharding = get_metadata(value, kShardingKey);
  return sharding && divides(*sharding, value) ? sharding : std::nullopt;
}

}  // namespace

bool says_shares(const OnnxModel& model) {
  auto any = [](const std::vector<Value*>& values) {
    return std::any_of(values.begin(), values.end(), [](const Value* value) { return share_of(*value).has_value(); });
  };
  const Graph& graph = *model.graph;
  return any(graph.inputs) || any(graph.outputs) || any(graph.values_of(ValueKind::state));
}

void require_whole(const OnnxModel& model, const Mesh& mesh, int64_t rank, bool one_for_all, const std::string& file) {
  auto refuse = [&](const Value& value, const std::string& sharding, std::string_view why) {
    fail("join",
         "'{}' belongs to a written program, and its '{}' is a shard, {}, {}; name the program's folder instead", file,
         value.name, sharding, why);
  };
  for (const auto* ports : {&model.graph->inputs, &model.graph->outputs})
    for (const Value* port : *ports)
      if (const auto sharding = share_of(*port))
        refuse(*port, *sharding, "which only the manifest says how to cut or assemble");
  for (const Value* state : model.graph->values_of(ValueKind::state)) {
    const auto sharding = share_of(*state);
    if (!sharding) continue;
    if (one_for_all && mesh.size() > 1) refuse(*state, *sharding, "which differs between ranks");
    if (!is_share_of(*state, *sharding, mesh, rank))
      refuse(*state, *sharding, fmt::format("and not that of rank {} of the mesh {}", rank, mesh.str()));
  }
}

}  // namespace tessera::program_io
