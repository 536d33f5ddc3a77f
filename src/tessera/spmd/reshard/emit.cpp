#include <algorithm>

#include "tessera/spmd/collective_attributes.h"
#include "tessera/spmd/reshard/reshard.h"

namespace tessera::spmd {
namespace {

using PartAt = std::pair<int, int>;  // dimension, part

// The local shape with the given parts as dimensions of their own: 3·4{tp}·16 with part 1 exposed is [3, 2, 16].
struct Exposed {
  Shape shape, global;
  Sharding sharding;    // of the tensor so shaped
  std::vector<int> at;  // the new dimension of each exposed part
};

Exposed expose(const Sharding& sharding, const std::vector<PartAt>& wanted, const Mesh& mesh) {
  Exposed result;
  result.at.resize(wanted.size());
  result.sharding.partial = sharding.partial;
  result.sharding.at = sharding.at;
  for (int d = 0; d < static_cast<int>(sharding.dims.size()); ++d) {
    DimSharding run;
    auto flush = [&] {
      if (run.parts.empty()) return;
      result.shape.push_back(local_extent(run, mesh));
      result.global.push_back(run.size());
      result.sharding.dims.push_back(std::move(run));
      run = {};
    };
    const auto& parts = sharding.dims[d].parts;
    for (int p = 0; p < static_cast<int>(parts.size()); ++p) {
      auto found = std::find(wanted.begin(), wanted.end(), PartAt{d, p});
      if (found != wanted.end()) {
        flush();
        result.at[found - wanted.begin()] = static_cast<int>(result.shape.size());
      }
      run.parts.push_back(parts[p]);
      if (found != wanted.end()) flush();
    }
    flush();
  }
  return result;
}

}  // namespace

Value* emit_reshard(Program& program, Value* value, const ReshardStep& step, const TensorType& global,
                    const std::string& global_name, const Node* before_node) {
  Graph& graph = *program.graph;
  const Mesh& mesh = program.mesh;
  if (step.kind == ReshardKind::forget) return value;
  const auto collective = collective_of(step.kind);
  const BlockSide block = collective ? traits_of(*collective).block : BlockSide::result;  // a slice is one, too
  std::vector<PartAt> wanted;
  if (block != BlockSide::none) wanted.push_back({step.dim, step.part});
  if (block == BlockSide::both) wanted.push_back({step.to_dim, step.to_part});
  Exposed before = expose(step.before, wanted, mesh), after = expose(step.after, wanted, mesh);

  auto reshaped = [&](Value* from, const Shape& shape) {
    if (from->shape() == shape) return from;
    Value* target = graph.add_expression(global_name + ".view_shape", shape);
    Value* result = graph.add_node("Reshape", {from, target}, {global_name + ".view"}, "", before_node)->outputs[0];
    result->producer->set("allowzero", int64_t{1});
    result->type = {from->dtype(), shape};
    return result;
  };
  // The global tensor in the exposed shape is a tensor like any other.
  auto place = [&](Value* view, const Exposed& as) {
    program.placements.try_emplace(view, Placement{global_name, {global.dtype, as.global}, as.sharding});
  };
  auto communicate = [&](Collective kind, Value* from) {
    Node* node = graph.add_node(traits_of(kind).op, {from}, {global_name}, kCommDomain, before_node);
    CollectiveAttributes all{.kind = kind, .value = global_name, .reduction = step.reduction, .root = step.root};
    for (const AxisRef& axis : step.axes) all.axes.push_back(axis.str(mesh));
    if (block == BlockSide::both) {
      all.concat_dim = before.at[0];
      all.split_dim = before.at[1];
    } else if (block != BlockSide::none) {
      all.dim = before.at[0];
    }
    if (kind == Collective::permute) all.targets = targets_of(step);
    node->attributes = written(all);
    return node->outputs[0];
  };
  auto slice = [&](Value* from) {
    const Part& part = step.before.dims[step.dim].parts[step.part];
    Expr extent = local_extent(part, mesh), index = index_along(step.axes[0], mesh);
    Expr start = split_offset(extent, index, step.axes[0].size);
    Expr count = split_extent(extent, index, step.axes[0].size);
    Value* starts = graph.add_expression(global_name + ".start", {start});
    Value* ends = graph.add_expression(global_name + ".end", {start + count});
    Node* node = graph.add_node("Slice", {from, starts, ends, graph.constant_int64({before.at[0]})},
                                {global_name + ".shard"}, "", before_node);
    return node->outputs[0];
  };

  Value* view = reshaped(value, before.shape);
  place(view, before);
  Value* result = collective ? communicate(*collective, view) : slice(view);
  result->type = {value->dtype(), after.shape};
  if (result->shape() != local_shape(step.after, mesh)) place(result, after);
  result = reshaped(result, local_shape(step.after, mesh));
  program.placements[result] = {global_name, global, step.after};
  return result;
}

}  // namespace tessera::spmd
