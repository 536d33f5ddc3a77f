#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tessera/onnx/device_annotations.h"

/// What a model's device annotations leave open, and what is wrong with them.
namespace tessera::compiler {

/// The devices that stand for a list that a node leaves empty: those of its pipeline stage, or all. A stage has the
/// devices that nodes of the main graph name for it; if they name none, its share of all devices, which are dealt out
/// to the stages in order.
class DefaultDevices {
 public:
  DefaultDevices(const Graph& graph, const DeviceConfiguration& configuration);
  const std::vector<int64_t>& of(const NodeDevices& annotation) const;  ///< ascending

 private:
  std::vector<int64_t> all_;
  std::map<int64_t, std::vector<int64_t>> of_stage_;
};

/// Who holds each shard that a spec speaks of, in its order: the members of a group for its key.
std::vector<std::vector<int64_t>> holders_of(const ShardingSpec& spec, const std::vector<int64_t>& otherwise);

/// Into how many shards it splits a tensor; the largest number if there are more.
int64_t shards_of(const ShardingSpec& spec);

/// The shapes of these tensors of the main graph: the file's, or those that follow from its inputs'. Those that nothing
/// needs, or that only sizes are computed from, may be missing, and so may all of a model that cannot be rewritten.
std::map<std::string, Shape> shapes_of(const OnnxModel& model, const std::set<std::string>& names);

/// The elements of one of several factors of an axis: a number, or a symbol of the axis's extent. Nullopt: not stated.
std::optional<Expr> size_of(const ShardedFactor& factor, const Expr& extent);

struct DeviceFault {
  std::string node;     ///< "MatMul 'x'"; "": of the configuration
  std::string message;  ///< names it, the configuration and the tensor
};

/// Statements that contradict themselves or the model, wherever they are: of configurations that the model lacks, of
/// tensors that are not the node's, axes or devices out of range, groups that overlap, and counts that do not multiply
/// out. `configuration`: only annotations for this one, or for one that the model does not declare; "": all.
std::vector<DeviceFault> device_faults(const OnnxModel& model, const std::string& configuration = "");
/// Throws a user error for the first of them.
void refuse_faults(const OnnxModel& model, const std::string& configuration);

}  // namespace tessera::compiler
