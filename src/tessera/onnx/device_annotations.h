#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/graph.h"

/// ONNX's multi-device annotations (IR version 11), as files hold them: nothing is checked or completed here.
namespace tessera {

/// A set of devices on which a model may run; annotations of nodes name it.
struct DeviceConfiguration {
  std::string name;
  int64_t num_devices = 0;
  std::vector<std::string> devices;  ///< their names; may be empty
  bool operator==(const DeviceConfiguration&) const = default;
};

/// A factor of a dimension, and into how many shards it is split. Without a size or symbol: the whole dimension.
struct ShardedFactor {
  std::optional<int64_t> size;
  std::string symbol;
  int64_t shards = 0;
  bool operator==(const ShardedFactor&) const = default;
};

/// The product of its factors, major first.
struct ShardedAxis {
  int64_t axis = 0;  ///< in [-rank, rank)
  std::vector<ShardedFactor> factors;
  bool operator==(const ShardedAxis&) const = default;
};

struct DeviceGroup {
  int64_t key = 0;
  std::vector<int64_t> devices;
  bool operator==(const DeviceGroup&) const = default;
};

/// The layout of an operand or result of a node. `devices` lists the holder of each shard, row-major over the axes and
/// their factors in the order written; the key of a group stands for all its members.
struct ShardingSpec {
  std::string tensor;
  std::vector<int64_t> devices;
  std::vector<DeviceGroup> groups;
  std::vector<ShardedAxis> axes;
  bool operator==(const ShardingSpec&) const = default;
};

/// A node's annotations for one configuration.
struct NodeDevices {
  std::string configuration;
  std::vector<ShardingSpec> specs;
  std::optional<int64_t> stage;  ///< of a pipeline
  bool operator==(const NodeDevices&) const = default;
};

std::vector<DeviceConfiguration> device_configurations(const OnnxModel& model);
std::vector<NodeDevices> device_annotations(const Node& node);
/// The node's annotations for that configuration; nullopt: none.
std::optional<NodeDevices> device_annotation(const Node& node, std::string_view configuration);
/// The number of nodes of the graph and its bodies with annotations for that configuration.
size_t count_annotated(const Graph& graph, std::string_view configuration);
/// The number of nodes of the model, its bodies and functions with annotations for any configuration.
size_t count_annotated(const OnnxModel& model);

/// Removes the annotations for that configuration from the model, its bodies and functions; nullopt: for all.
void forget_device_annotations(OnnxModel& model, std::optional<std::string_view> configuration = std::nullopt);

/// Replace what is there; everything else in the element's `extra` stays. A model with configurations has an IR version
/// of at least 11.
void set_device_configurations(OnnxModel& model, const std::vector<DeviceConfiguration>& configurations);
void set_device_annotations(Node& node, const std::vector<NodeDevices>& annotations);

}  // namespace tessera
