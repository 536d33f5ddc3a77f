#include "tessera/program_io/rank_model.h"

#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/dialect/schema.h"
#include "tessera/ir/flow.h"
#include "tessera/mesh/group.h"
#include "tessera/onnx/metadata.h"
#include "tessera/program_io/close_regions.h"
#include "tessera/program_io/enclose.h"
#include "tessera/program_io/expression_nodes.h"
#include "tessera/program_io/lowering.h"
#include "tessera/rewrite/pipeline.h"
#include "tessera/spmd/partition/specialize.h"

namespace tessera::program_io {
namespace {

// The first IR version for rewrite::kCanonicalOpset.
constexpr int64_t kIrVersion = 12;
constexpr int64_t kDialectVersion = 1;

class RankModel {
 public:
  RankModel(const spmd::Program& program, const std::vector<int64_t>& coordinates,
            const std::vector<std::string>& unbound, const SymbolNames& names, const WriteOptions& options)
      : program_(program),
        coordinates_(coordinates),
        names_(names),
        hints_(rename(program.hints, names)),
        expressions_(*model_.graph, [this](const std::string& axis) { return lowering_.axis_index(axis); }),
        lowering_(*model_.graph, expressions_, program.mesh, program.mesh.rank_of(coordinates), options, hints_) {
    for (size_t a = 0; a < coordinates.size(); ++a) {
      const std::string& axis = program.mesh.axes()[a].name;
      if (std::find(unbound.begin(), unbound.end(), axis) == unbound.end()) bound_["@" + axis] = coordinates[a];
    }
  }

  WrittenModel run(const std::vector<StoredShard>& shards) {
    model_.ir_version = kIrVersion;
    model_.opset_imports = {{"", rewrite::kCanonicalOpset},
                            {std::string(spmd::kLocalDomain), kDialectVersion},
                            {std::string(spmd::kCommDomain), kDialectVersion}};
    for (const auto& node : program_.graph->nodes())
      if (is_of_others(*node)) model_.opset_imports.try_emplace(node->domain, 1);
    graph().name = program_.graph->name.empty() ? "program" : program_.graph->name;
    add_values(shards);
    // Puts nodes for expressions before the nodes that use them.
    for (const Value* value : program_.graph->values_of(ValueKind::expression))
      if (!value->uses.empty())
        known_[value] = expressions_.value_of(value->name, bind(*value->content), value->rank() == 0, value->dtype());
    for (const auto& node : program_.graph->nodes()) add_node(*node);
    for (const spmd::Port& port : program_.outputs)
      if (port.value) graph().outputs.push_back(known_.at(port.value));
    for (const auto& value : program_.graph->values())
      if (value->next && !graph().is_output(known_.at(value->next))) graph().outputs.push_back(known_.at(value->next));
    enclose();
    close_regions(graph());
    model_.functions = lowering_.take_functions();
    graph().verify("write");
    return {std::move(model_), lowering_.uses_rank(), false};
  }

 private:
  using Hints = std::map<std::string, int64_t, std::less<>>;

  static Hints rename(const Hints& hints, const SymbolNames& names) {
    Hints renamed;
    for (const auto& [symbol, value] : hints) renamed[names.rename(symbol)] = value;
    return renamed;
  }

  /// Whether the operator is ONNX's or another engine's.
  static bool is_of_others(const Node& node) { return !node.domain.starts_with(spmd::kLocalDomain); }

  Graph& graph() { return *model_.graph; }
  const Graph& graph() const { return *model_.graph; }

  Expr bind(const Expr& expr) const {
    return names_.rename(expr).substitute([&](std::string_view name) -> std::optional<Expr> {
      auto found = bound_.find(name);
      return found == bound_.end() ? std::nullopt : std::optional(Expr(found->second));
    });
  }
  Shape bind(const Shape& shape) const {
    Shape result;
    for (const Expr& extent : shape) result.push_back(bind(extent));
    return result;
  }
  TensorType bind(const TensorType& type) const {
    TensorType result{type.dtype, std::nullopt};
    if (type.shape) result.shape = bind(*type.shape);
    return result;
  }

  // Adds all values except expressions first, so that every value keeps its name.
  void add_values(const std::vector<StoredShard>& shards) {
    std::map<const Value*, const StoredShard*> shard_of;
    for (const StoredShard& shard : shards) shard_of[shard.state] = &shard;
    for (const spmd::Port& port : program_.inputs)
      known_[port.value] = graph().add_input(port.value->name, bind(port.value->type));
    for (const auto& value : program_.graph->values()) {
      if (value->kind == ValueKind::expression || known_.contains(value.get())) continue;
      Value*& added = known_[value.get()];
      if (value->kind == ValueKind::state) {
        const StoredShard& shard = *shard_of.at(value.get());
        Tensor absent{value->dtype(), shard.dims, nullptr, nullptr, shard.bytes};
        added = graph().add_state(value->name, std::move(absent));
      } else if (value->kind == ValueKind::constant) {
        added = graph().add_constant(value->name, value->data);
      } else {
        added = graph().add_value(value->name, value->kind, bind(value->type));
      }
      check(added->name == value->name, "a rank's values are called as the program's");
    }
    for (const auto& value : program_.graph->values())
      if (auto found = program_.placements.find(value.get());
          found != program_.placements.end() && known_.contains(value.get()))
        describe(*known_.at(value.get()), found->second);
  }

  void describe(Value& value, const spmd::Placement& placement) {
    Shape shape = names_.rename(*placement.global.shape);
    Sharding sharding = names_.rename(placement.sharding);
    std::string text = sharding.str(program_.mesh);
    check(same_layout(parse_sharding(text, shape, program_.mesh, placement.name), sharding),
          fmt::format("'{}' of '{}' can be read back", text, placement.name));
    set_metadata(value, kValueKey, placement.name);
    set_metadata(value, kGlobalKey, fmt::format("{}{}", name_of(placement.global.dtype), to_string(shape)));
    set_metadata(value, kShardingKey, text);
  }

  void add_node(const Node& node) {
    if (!node.regions().empty())
      fail("write", "{}: operators that contain graphs cannot be written as a program yet; run the model itself",
           node.label());
    auto added = std::make_unique<Node>(node);
    added->extra.clear();  // it describes the whole model's node
    for (Value*& operand : added->inputs)
      if (operand) operand = known_.at(operand);
    for (Value*& result : added->outputs)
      if (result) result = known_.at(result);
    if (node.domain == spmd::kCommDomain) {
      state_extents(node, *added);
      if (!added->inputs.empty() && !added->inputs[0]) added->inputs[0] = absent_operand(node);
    }
    if (is_of_others(node) || node.domain == flow::kDomain)
      graph().adopt_node(std::move(added));
    else
      lowering_.add(std::move(added));
  }

  // In a model for ranks at several places, nodes that run at only some places are in Ifs.
  void enclose() {
    const auto axes = spmd::placed_axes(program_);
    if (std::all_of(axes.begin(), axes.end(), [&](const AxisRef& axis) { return bound_.contains("@" + axis.axis); }))
      return;
    Enclosure enclosure{places(), [this](const std::vector<PlacedAxis>& place) { return is_at(place); },
                        [this](const Value& value) {
                          return expressions_.value_of(value.name + ".shape", value.shape(), false, DType::int64);
                        }};
    enclose_placed(graph(), enclosure);
  }

  // A node whose results do not stand for global values runs where its operands are: without a place of its own, it has
  // the place of an operand that is made at one.
  std::map<const Node*, std::vector<PlacedAxis>> places() const {
    std::map<const Node*, std::vector<PlacedAxis>> places;
    std::map<const Value*, std::vector<PlacedAxis>> of_value;
    std::set<const Node*> stated;
    for (const auto& [value, placement] : program_.placements)
      if (auto known = known_.find(value); known != known_.end()) of_value[known->second] = placement.sharding.at;
    for (const auto& node : program_.graph->nodes())
      if (const auto place = spmd::place_of(program_, *node))
        for (const Value* result : node->outputs) {
          if (!result) continue;
          const Node* made = known_.at(result)->producer;
          stated.insert(made);
          if (!place->empty()) places[made] = *place;
        }
    for (const auto& node : graph().nodes()) {
      if (stated.contains(node.get())) continue;
      std::vector<PlacedAxis> place;
      for (const Value* operand : node->inputs)
        for (const PlacedAxis& entry : operand ? of_value[operand] : std::vector<PlacedAxis>())
          if (std::find(place.begin(), place.end(), entry) == place.end()) place.push_back(entry);
      for (const Value* result : node->outputs)
        if (result) of_value[result] = place;
      if (!place.empty()) places[node.get()] = place;
    }
    return places;
  }

  Value* is_at(const std::vector<PlacedAxis>& place) {
    Value*& known = conditions_[print_place(place, program_.mesh)];
    if (known) return known;
    for (const PlacedAxis& entry : place) {
      const std::string name = fmt::format("at.{}.{}", entry.axis.str(program_.mesh), entry.index);
      Value* index =
          expressions_.value_of(name + ".index", {index_along(entry.axis, program_.mesh)}, true, DType::int64);
      Value* same = test("Equal", index, graph().constant_int64({entry.index}, true), name);
      known = known ? test("And", known, same, "at") : same;
    }
    return known;
  }

  Value* test(std::string_view op, Value* a, Value* b, const std::string& name) {
    Value* result = graph().add_node(op, {a, b}, {name})->outputs[0];
    result->type = {DType::boolean, Shape{}};
    return result;
  }

  // Zeros instead of an operand that this rank lacks, and that no other rank reads from it.
  Value* absent_operand(const Node& node) {
    Shape shape = bind(node.output()->shape());
    if (dialect::kind_of(node) == comm::Kind::scatter) {
      const spmd::CollectiveAttributes collective = spmd::read_collective(node, program_.mesh);
      const auto dim = static_cast<size_t>(collective.dim);
      const std::vector<AxisRef> axes = parse_axes(collective.axes, program_.mesh);
      shape[dim] = 0;
      for (int member : group_of(program_.mesh.rank_of(coordinates_), axes, program_.mesh))
        shape[dim] = shape[dim] + names_.rename(bind_rank(node.output()->shape()[dim], program_.mesh,
                                                          program_.mesh.coordinates(member)));
    }
    const std::string name = node.output()->name + ".absent";
    Value* extents = expressions_.value_of(name + "_shape", shape, false, DType::int64);
    Node* zeros = graph().add_node("ConstantOfShape", {extents}, {name});
    zeros->set("value", Tensor::zeros(node.output()->dtype(), {1}));
    zeros->outputs[0]->type = {node.output()->dtype(), shape};
    return zeros->outputs[0];
  }

  // States the extents that, in the program, follow from the operands' shapes, which there hold for any rank.
  void state_extents(const Node& node, Node& added) const {
    if (!dialect::communicates(node)) return;
    spmd::CollectiveAttributes collective = spmd::read_collective(node, program_.mesh);
    const BlockSide block = traits_of(collective.kind).block;
    if (block == BlockSide::none) return;
    collective.extent.reset();
    collective.split_extent.reset();
    collective.concat_extent.reset();
    const spmd::MemberExtents extents = spmd::member_extents(collective, node);
    if (block == BlockSide::both) {
      collective.split_extent.emplace(names_.rename(extents.split));
      collective.concat_extent.emplace(names_.rename(extents.concat));
    } else {
      collective.extent.emplace(names_.rename(extents.block));
    }
    added.attributes = spmd::written(collective);
  }

  const spmd::Program& program_;
  const std::vector<int64_t>& coordinates_;
  const SymbolNames& names_;
  std::map<std::string, int64_t, std::less<>> bound_;  // "@tp" → coordinate
  OnnxModel model_;
  Hints hints_;
  ExpressionNodes expressions_;
  Lowering lowering_;
  std::map<const Value*, Value*> known_;
  std::map<std::string, Value*> conditions_;  // by place
};

}  // namespace

WrittenModel rank_model(const spmd::Program& program, const std::vector<int64_t>& coordinates,
                        const std::vector<std::string>& unbound, const std::vector<StoredShard>& shards,
                        const SymbolNames& names, const WriteOptions& options) {
  return RankModel(program, coordinates, unbound, names, options).run(shards);
}

}  // namespace tessera::program_io
