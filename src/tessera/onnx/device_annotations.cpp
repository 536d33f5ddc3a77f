#include "tessera/onnx/device_annotations.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/ir/regions.h"
#include "tessera/onnx.pb.h"

namespace tessera {
namespace {

constexpr int64_t kFirstVersion = 11;  // of the IR, that has these annotations

template <typename Message>
Message message_in(const std::string& extra) {
  Message message;
  check(message.ParseFromString(extra), "what was kept of a model or node can be read back");
  return message;
}

ShardingSpec read(const onnx::ShardingSpecProto& message) {
  ShardingSpec spec;
  spec.tensor = message.tensor_name();
  spec.devices.assign(message.device().begin(), message.device().end());
  for (const auto& group : message.index_to_device_group_map())
    spec.groups.push_back({group.key(), {group.value().begin(), group.value().end()}});
  for (const auto& dim : message.sharded_dim()) {
    spec.axes.push_back({dim.axis(), {}});
    for (const auto& simple : dim.simple_sharding()) {
      ShardedFactor factor;
      if (simple.has_dim_value()) factor.size = simple.dim_value();
      factor.symbol = simple.dim_param();
      factor.shards = simple.has_num_shards() ? simple.num_shards() : 1;
      spec.axes.back().factors.push_back(std::move(factor));
    }
  }
  return spec;
}

void write(const ShardingSpec& spec, onnx::ShardingSpecProto& message) {
  message.set_tensor_name(spec.tensor);
  message.mutable_device()->Assign(spec.devices.begin(), spec.devices.end());
  for (const DeviceGroup& group : spec.groups) {
    auto& entry = *message.add_index_to_device_group_map();
    entry.set_key(group.key);
    entry.mutable_value()->Assign(group.devices.begin(), group.devices.end());
  }
  for (const ShardedAxis& axis : spec.axes) {
    auto& dim = *message.add_sharded_dim();
    dim.set_axis(axis.axis);
    for (const ShardedFactor& factor : axis.factors) {
      auto& simple = *dim.add_simple_sharding();
      if (factor.size)
        simple.set_dim_value(*factor.size);
      else if (!factor.symbol.empty())
        simple.set_dim_param(factor.symbol);
      simple.set_num_shards(factor.shards);
    }
  }
}

}  // namespace

std::vector<DeviceConfiguration> device_configurations(const OnnxModel& model) {
  std::vector<DeviceConfiguration> configurations;
  const auto message = message_in<onnx::ModelProto>(model.extra);
  for (const auto& entry : message.configuration())
    configurations.push_back({entry.name(), entry.num_devices(), {entry.device().begin(), entry.device().end()}});
  return configurations;
}

std::vector<NodeDevices> device_annotations(const Node& node) {
  std::vector<NodeDevices> annotations;
  if (node.extra.empty()) return annotations;
  const auto message = message_in<onnx::NodeProto>(node.extra);
  for (const auto& entry : message.device_configurations()) {
    NodeDevices devices;
    devices.configuration = entry.configuration_id();
    if (entry.has_pipeline_stage()) devices.stage = entry.pipeline_stage();
    for (const auto& spec : entry.sharding_spec()) devices.specs.push_back(read(spec));
    annotations.push_back(std::move(devices));
  }
  return annotations;
}

std::optional<NodeDevices> device_annotation(const Node& node, std::string_view configuration) {
  for (NodeDevices& annotation : device_annotations(node))
    if (annotation.configuration == configuration) return std::move(annotation);
  return std::nullopt;
}

size_t count_annotated(const Graph& graph, std::string_view configuration) {
  size_t count = 0;
  for_each_node(graph, [&](const Node& node) { count += device_annotation(node, configuration).has_value(); });
  return count;
}

size_t count_annotated(const OnnxModel& model) {
  size_t count = 0;
  for_each_node(model, [&](const Node& node) { count += !device_annotations(node).empty(); });
  return count;
}

void forget_device_annotations(OnnxModel& model, std::optional<std::string_view> configuration) {
  for_each_node(model, [&](Node& node) {
    std::vector<NodeDevices> said = device_annotations(node);
    if (std::erase_if(said, [&](const NodeDevices& entry) {
          return !configuration || entry.configuration == *configuration;
        }) > 0)
      set_device_annotations(node, said);
  });
}

void set_device_configurations(OnnxModel& model, const std::vector<DeviceConfiguration>& configurations) {
  auto message = message_in<onnx::ModelProto>(model.extra);
  message.clear_configuration();
  for (const DeviceConfiguration& configuration : configurations) {
    auto& entry = *message.add_configuration();
    entry.set_name(configuration.name);
    entry.set_num_devices(static_cast<int32_t>(configuration.num_devices));
    for (const std::string& device : configuration.devices) entry.add_device(device);
  }
  model.extra = message.SerializeAsString();
  if (!configurations.empty()) model.ir_version = std::max(model.ir_version, kFirstVersion);
}

void set_device_annotations(Node& node, const std::vector<NodeDevices>& annotations) {
  auto message = message_in<onnx::NodeProto>(node.extra);
  message.clear_device_configurations();
  for (const NodeDevices& devices : annotations) {
    auto& entry = *message.add_device_configurations();
    entry.set_configuration_id(devices.configuration);
    if (devices.stage) entry.set_pipeline_stage(static_cast<int32_t>(*devices.stage));
    for (const ShardingSpec& spec : devices.specs) write(spec, *entry.add_sharding_spec());
  }
  node.extra = message.SerializeAsString();
}

}  // namespace tessera
