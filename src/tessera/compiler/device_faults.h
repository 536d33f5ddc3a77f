#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tessera/onnx/device_annotations.h"

/// The defaults of a model's device annotations, and their faults.
namespace tessera::compiler {

/// The devices of a node that lists none: those of its pipeline stage, or all. A stage has the devices that nodes of
/// the main graph list for it; if they list none, its share of all devices, which are distributed over the stages in
/// order.
class DefaultDevices {
 public:
  DefaultDevices(const Graph& graph, const DeviceConfiguration& configuration);
  const std::vector<int64_t>& of(const NodeDevices& annotation) const;  ///< ascending

 private:
  std::vector<int64_t> all_;
  std::map<int64_t, std::vector<int64_t>> of_stage_;
};

/// The devices that hold each shard of a spec, in its order; a group's key stands for its members.
std::vector<std::vector<int64_t>> holders_of(const ShardingSpec& spec, const std::vector<int64_t>& otherwise);

/// The number of shards that it splits a tensor into; the largest int64 if there are more.
int64_t shards_of(const ShardingSpec& spec);

/// The shapes of these tensors of the main graph, as declared in the file or inferred. Shapes of tensors that are
/// unused, or used only to compute sizes, may be missing, and so may all shapes of a model that cannot be rewritten.
std::map<std::string, Shape> shapes_of(const OnnxModel& model, const std::set<std::string>& names);

/// The size of one of several factors of an axis: a number, or a symbol of the axis's extent. Nullopt: not stated.
std::optional<Expr> size_of(const ShardedFactor& factor, const Expr& extent);

struct DeviceFault {
  std::string node;     ///< "MatMul 'x'"; "": of the configuration
  std::string message;  ///< names the node, the configuration and the tensor
};

/// All annotations that contradict themselves or the model: unknown configurations, tensors that are not the node's,
/// axes or devices out of range, groups that overlap, and factors that do not multiply to the extent. `configuration`:
/// checks only annotations for this one, or for one that the model does not declare; "": all.
std::vector<DeviceFault> device_faults(const OnnxModel& model, const std::string& configuration = "");
/// Throws a user error for the first of them.
void refuse_faults(const OnnxModel& model, const std::string& configuration);

}  // namespace tessera::compiler
