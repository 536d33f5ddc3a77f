#include "tessera/compiler/write_devices.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "tessera/compiler/device_faults.h"
#include "tessera/compiler/device_plan.h"
#include "tessera/compiler/inner_tensors.h"
#include "tessera/compiler/stacks.h"
#include "tessera/mesh/device_lists.h"
#include "tessera/onnx/metadata.h"
#include "tessera/ops/op.h"

namespace tessera::compiler {
namespace {

// A factor's size as a file states it; empty if a file cannot.
void name_size(ShardedFactor& factor, const Expr& size) {
  if (const auto number = size.constant())
    factor.size = *number;
  else if (std::set<std::string> symbols;
           size.collect_symbols(symbols), symbols.size() == 1 && size.str() == *symbols.begin())
    factor.symbol = *symbols.begin();
}

class Writer {
 public:
  Writer(OnnxModel& model, const Compiled& compiled, const std::vector<int64_t>& devices,
         const std::string& configuration, const std::map<std::string, std::string>& copies)
      : model_(model),
        graph_(*model.graph),
        compiled_(compiled),
        devices_(devices),
        configuration_(configuration),
        copies_(copies) {
    for (const auto& node : graph_.nodes())
      for (const Value* result : node->outputs)
        if (result) results_.insert(result->name);
    std::set<std::string> names;
    for (const auto& value : graph_.values())
      if (compiled_value(value->name)) names.insert(value->name);
    shapes_ = compiler::shapes_of(model, names);
    for (const auto& [value, label] : compiled.labels) labelled_[label].push_back(value);
    for (const Value* state : compiled.model->graph->values_of(ValueKind::state))
      for (size_t row = 0; row < state->rows.size(); ++row) rows_.emplace(state->rows[row], std::pair(state, row));
  }

  void run() {
    for (const auto& node : graph_.nodes()) {
      annotate(*node, [&](const std::string& tensor, InnerRole role) {
        if (role == InnerRole::result) return spec_of(tensor, result_layout(tensor));
        return rows_.contains(tensor) ? spec_of_row(tensor) : spec_of(tensor, operand_layout(*node, tensor));
      });
    }
    for_each_inner_node(model_, [&](Graph&, Node& node, size_t index) {
      annotate(node, [&](const std::string& tensor, InnerRole role) {
        return common_spec(tensor, role, inner_label(index, role, tensor));
      });
    });
  }

 private:
  const Mesh& mesh() const { return compiled_.program->mesh; }

  // The tensor of the model as read.
  std::string read_name(const Value& value) const {
    const auto copied = copies_.find(value.name);
    return copied == copies_.end() ? value.name : copied->second;
  }

  // Adds annotations that the node lacks: `spec(tensor, role)`, nullopt for none.
  template <typename Spec>
  void annotate(Node& node, const Spec& spec) const {
    std::vector<NodeDevices> all = device_annotations(node);
    auto own = std::find_if(all.begin(), all.end(),
                            [&](const NodeDevices& entry) { return entry.configuration == configuration_; });
    if (own == all.end()) own = all.insert(all.end(), NodeDevices{configuration_, {}, std::nullopt});
    auto add = [&](const std::vector<Value*>& tensors, InnerRole role) {
      for (const Value* tensor : tensors) {
        const auto same = [&](const ShardingSpec& known) { return known.tensor == tensor->name; };
        if (!tensor || std::any_of(own->specs.begin(), own->specs.end(), same)) continue;
        if (auto made = spec(tensor->name, role)) own->specs.push_back(std::move(*made));
      }
    };
    add({node.inputs.begin(), node.inputs.begin() + static_cast<long>(node.operand_count())}, InnerRole::operand);
    add(node.outputs, InnerRole::result);
    if (own->specs.empty() && !own->stage) all.erase(own);
    set_device_annotations(node, all);
  }

  std::optional<ShardingSpec> spec_of(const std::string& tensor, const Sharding* layout) const {
    if (!layout || layout->is_partial() || !is_like(tensor)) return std::nullopt;
    return compiler::spec_of(tensor, *layout, mesh(), devices_);
  }

  // A parameter that is a row of a stack has the place of this row.
  std::optional<ShardingSpec> spec_of_row(const std::string& name) const {
    const auto& [stack, row] = rows_.at(name);
    const Sharding* whole = source_layout(stack->name);
    if (!whole || whole->is_partial()) return std::nullopt;
    const DimSharding rows = canonical(whole->dims[0]);
    if (rows.parts.size() != 1) return std::nullopt;
    Sharding own = *whole;
    own.dims.erase(own.dims.begin());
    for (PlacedAxis& entry :
         place_of_row(rows.parts[0].axes, static_cast<int64_t>(row), static_cast<int64_t>(stack->rows.size())))
      own.at.push_back(std::move(entry));
    return compiler::spec_of(name, own, mesh(), devices_);
  }

  // Unrolled iterations and calls of a function may give a tensor different layouts; then it gets no annotation.
  std::optional<ShardingSpec> common_spec(const std::string& tensor, InnerRole role, const std::string& label) const {
    const auto found = labelled_.find(label);
    if (found == labelled_.end()) return std::nullopt;
    std::optional<ShardingSpec> common;
    for (const Value* value : found->second) {
      const Sharding* layout = labelled_layout(*value, role);
      if (!layout || layout->is_partial()) return std::nullopt;
      ShardingSpec spec = compiler::spec_of(tensor, *layout, mesh(), devices_);
      if (common && *common != spec) return std::nullopt;
      common = std::move(spec);
    }
    return common;
  }

  // A result has the layout in which the copy after it is made, unless that is a partial sum; otherwise a copy has the
  // layout in which its reader takes it.
  const Sharding* labelled_layout(const Value& value, InnerRole role) const {
    if (!value.has_shape() || value.kind == ValueKind::expression) return nullptr;
    const Sharding& made = decision(value.producer).results[0];
    if (role == InnerRole::result && !made.is_partial()) return &made;
    return value.uses.empty() ? nullptr : taken(value.uses.front().node, value.uses.front().index);
  }

  // Rewriting may give a name's tensor another shape.
  bool is_like(const std::string& name) const {
    const Value* value = compiled_value(name);
    const auto shape = shapes_.find(name);
    return value && shape != shapes_.end() && shape->second == value->shape();
  }

  const Value* compiled_value(const std::string& name) const {
    const Value* value = compiled_.model->graph->find(name);
    return value && value->has_shape() && value->kind != ValueKind::expression ? value : nullptr;
  }

  const spmd::NodeDecision& decision(const Node* node) const {
    return compiled_.decisions.nodes[compiled_.layout->index_of(node)];
  }

  // The layout in which the node takes that operand.
  const Sharding* taken(const Node* node, size_t index) const {
    const auto& operands = decision(node).operands;
    const bool is_known = node->inputs[index]->kind == ValueKind::expression || ops::reads_values(*node, index);
    return is_known || index >= operands.size() ? nullptr : &operands[index];
  }

  // As the compiled node takes it that makes a result of `node`, or one before it that makes no result of the model as
  // read, since rewriting has put it there.
  const Sharding* operand_layout(const Node& node, const std::string& operand) const {
    for (const Value* result : node.outputs) {
      const Value* made = result ? compiled_value(result->name) : nullptr;
      if (!made || !made->producer) continue;
      std::vector<const Node*> waiting = {made->producer};
      std::set<const Node*> seen;
      while (!waiting.empty()) {
        const Node* at = waiting.back();
        waiting.pop_back();
        if (!seen.insert(at).second) continue;
        for (size_t i = 0; i < at->inputs.size(); ++i) {
          const Value* value = at->inputs[i];
          if (!value) continue;
          if (read_name(*value) == operand) return taken(at, i);
          if (value->producer && !results_.contains(value->name) && !copies_.contains(value->name))
            waiting.push_back(value->producer);
        }
      }
    }
    return source_layout(operand);
  }

  // An input or parameter of the model as read, as all nodes values of the compiled model take it; null if they differ.
  const Sharding* source_layout(const std::string& name) const {
    const Value* value = compiled_value(name);
    if (!value || (value->kind != ValueKind::input && value->kind != ValueKind::state)) return nullptr;
    const Sharding* common = nullptr;
    for (const Use& use : value->uses) {
      const Sharding* layout = taken(use.node, use.index);
      if (!layout || (common && *common != *layout)) return nullptr;
      common = layout;
    }
    return common;
  }

  const Sharding* result_layout(const std::string& name) const {
    const Value* value = compiled_value(name);
    if (!value || !value->producer) return nullptr;
    for (const Use& use : value->uses)  // the node that brings it to where the annotations want it
      if (const Value* copy = use.node->output(); copy && copies_.contains(copy->name) && is_moved(*value, *copy))
        value = copy;
    const Node* producer = value->producer;
    const auto index = std::find(producer->outputs.begin(), producer->outputs.end(), value) - producer->outputs.begin();
    const Sharding& made = decision(producer).results[static_cast<size_t>(index)];
    if (!made.is_partial()) return &made;
    if (!value->uses.empty()) return taken(value->uses.front().node, value->uses.front().index);
    const auto output = compiled_.decisions.outputs.find(value);
    return output == compiled_.decisions.outputs.end() ? nullptr : &output->second;
  }

  // Whether all readers read the copy instead.
  static bool is_moved(const Value& value, const Value& copy) {
    return value.uses.size() == 1 && value.uses.front().node == copy.producer;
  }

  OnnxModel& model_;
  Graph& graph_;
  const Compiled& compiled_;
  const std::vector<int64_t>& devices_;
  const std::string& configuration_;
  const std::map<std::string, std::string>& copies_;
  std::set<std::string> results_;
  std::map<std::string, std::pair<const Value*, size_t>> rows_;  // parameters, and the stack in whose row each is
  std::map<std::string, Shape> shapes_;                          // of the model as read
  std::map<std::string, std::vector<const Value*>> labelled_;    // of the compiled model
};

}  // namespace

ShardingSpec spec_of(const std::string& tensor, const Sharding& sharding, const Mesh& mesh,
                     const std::vector<int64_t>& devices) {
  ShardingSpec spec;
  spec.tensor = tensor;
  ListedLayout layout;
  layout.at = sharding.at;
  for (size_t d = 0; d < sharding.dims.size(); ++d) {
    const DimSharding dim = canonical(sharding.dims[d]);
    if (!dim.is_split()) continue;
    spec.axes.push_back({static_cast<int64_t>(d), {}});
    for (const Part& part : dim.parts) {
      layout.factors.emplace_back();
      for (const AxisRef& axis : part.axes) layout.factors.back().push_back({axis.size, axis});
      ShardedFactor& factor = spec.axes.back().factors.emplace_back();
      name_size(factor, part.size);
      factor.shards = ranks_of(part.axes);
    }
  }
  std::map<std::vector<int64_t>, int64_t> keys;  // of groups
  for (const auto& ranks : holders_of(layout, mesh)) {
    std::vector<int64_t> holders;
    for (int64_t rank : ranks) holders.push_back(devices[static_cast<size_t>(rank)]);
    std::sort(holders.begin(), holders.end());
    if (spec.axes.empty()) {
      spec.devices = holders;
    } else if (holders.size() == 1) {
      spec.devices.push_back(holders.front());
    } else {
      const auto [known, fresh] = keys.emplace(holders, -1 - static_cast<int64_t>(keys.size()));
      if (fresh) spec.groups.push_back({known->second, holders});
      spec.devices.push_back(known->second);
    }
  }
  return spec;
}

void write_devices(OnnxModel& model, const Compiled& compiled, const std::vector<int64_t>& devices,
                   const std::string& configuration, const std::map<std::string, std::string>& copies) {
  Writer(model, compiled, devices, configuration, copies).run();
}

void write_configuration(OnnxModel& model, const Compiled& compiled, const std::string& configuration) {
  const Mesh& mesh = compiled.program->mesh;
  std::vector<DeviceConfiguration> configurations = device_configurations(model);
  std::erase_if(configurations, [&](const DeviceConfiguration& known) { return known.name == configuration; });
  configurations.push_back({configuration, mesh.size(), {}});
  set_device_configurations(model, configurations);
  forget_device_annotations(model, configuration);
  std::vector<int64_t> devices(static_cast<size_t>(mesh.size()));
  std::iota(devices.begin(), devices.end(), 0);
  write_devices(model, compiled, devices, configuration);
  set_metadata(model, mesh_key(configuration), mesh.str());
}

}  // namespace tessera::compiler
