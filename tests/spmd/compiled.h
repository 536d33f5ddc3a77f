#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/text.h"
#include "tessera/ops/op.h"
#include "tessera/spmd/partition/partition.h"

namespace tessera::spmd {

/// A model in ONNX text (without its header) on its way through the partitioner, each stage made from the one before.
struct Compiled {
  OnnxModel model;
  Mesh mesh;
  Hints hints;
  std::vector<Annotation> annotations;
  std::unique_ptr<Layout> layout;
  Propagation propagation;
  Decisions decisions;

  using Orders = std::vector<std::pair<std::string, std::string>>;

  /// `orders`: value and sharding, as in {"w", "[-, tp]"}; `placings`: result and place, as in {"y", "pp=1"}.
  Compiled(std::string_view text, std::string_view mesh_text, const Orders& orders = {}, const Orders& placings = {}) {
    model = parse_text("<ir_version: 10, opset_import: [\"\" : 24]>\n" + std::string(text));
    ops::infer_types(*model.graph);
    mesh = Mesh::parse(mesh_text);
    std::multimap<const Value*, Sharding> cuts;
    for (const auto& [name, sharding] : orders) {
      annotations.push_back({value(name), parse_sharding(sharding, value(name)->shape(), mesh, name), "annotation"});
      cuts.emplace(value(name), annotations.back().sharding);
    }
    Places places;
    for (const auto& [name, place] : placings) places[value(name)->producer] = parse_place(place, mesh, name);
    layout = std::make_unique<Layout>(*model.graph, hints, cuts, places);
    propagation = propagate(*layout, annotations, mesh);
    decisions = decide(*model.graph, *layout, mesh, hints, annotations);
  }

  const Value* value(std::string_view name) const { return model.graph->find(name); }
  const Slot& slot(std::string_view name) const { return layout->slots[layout->of_value.at(value(name)).front()]; }
  /// The layout that propagation gave a value: "[-, 12{tp}]".
  std::string propagated(std::string_view name) const { return slot(name).sharding().str(mesh); }
  /// The parts of a dimension: "3*4".
  std::string parts(std::string_view name, size_t dim) const {
    std::string text;
    for (const PartState& part : slot(name).dims.at(dim).parts) text += (text.empty() ? "" : "*") + part.size.str();
    return text;
  }
  /// A node's result as computed, partial sums included.
  std::string produced(std::string_view name) const {
    for (size_t n = 0; n < layout->nodes.size(); ++n)
      for (size_t r = 0; r < layout->nodes[n].node->outputs.size(); ++r)
        if (layout->nodes[n].node->outputs[r] == value(name)) return decisions.nodes[n].results[r].str(mesh);
    return "no result";
  }
  std::string stored(std::string_view name) const { return decisions.sources.at(value(name)).str(mesh); }

  Program program() const { return partition(*model.graph, *layout, decisions, mesh, hints); }
  /// The steps of all reshards of the program, in order: "x: AllGather tp; y: AllReduce tp".
  std::string communication() const {
    std::string text;
    for (const ReshardRecord& reshard : program().reshards)
      for (const std::string& step : reshard.steps)
        if (!step.starts_with("Slice")) text += (text.empty() ? "" : "; ") + reshard.value + ": " + step;
    return text;
  }
};

}  // namespace tessera::spmd
