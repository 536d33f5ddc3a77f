#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/mesh/mesh.h"
#include "tessera/plan.h"

/// The candidates of a search for a plan.
namespace tessera::plan {

/// A candidate: what a plan decides.
struct Choice {
  Mesh mesh;
  std::string presets;
  std::string tensor;              ///< of these, those that split tensors within a layer: "megatron+sequence"
  bool stores_parameters = false;  ///< split between uses, which gather them
  bool keeps_gathered = false;
  int micro_batches = 1;
  std::string recompute;                ///< "none", "selective", "full"; "" without a training step
  std::optional<int64_t> bucket_bytes;  ///< none: what the links ask for
  size_t layout = 0;                    ///< number of its mesh, presets and gathers: with one number, layouts are equal
  size_t kernels = 0;  ///< number of all but its buckets: with one number, programs run the same kernels
  /// Into how many parts each parameter and each state of the optimizer may be split, at most.
  int64_t parameter_shards = 1, optimizer_shards = 1;

  /// Sizes of axes that the mesh may lack; 1 then.
  int64_t size_of(std::string_view axis) const;
  /// Ranks over which the batch is split.
  int64_t data_ranks() const { return size_of("dp") * size_of("fsdp"); }
  /// "dp=4,tp=2, zero1+megatron, 2 micro-batches, recompute=full"
  std::string str() const;
  /// `fixed` with what the candidate decides.
  Plan over(const Plan& fixed) const;
};

/// What candidates there are.
struct Space {
  int64_t devices = 1;
  bool trains = false;
  bool has_experts = false;  ///< so that the axis ep splits something
  int64_t batch = 1;         ///< samples of a step
  Plan fixed;                ///< what it says of a dimension fixes that
};

/// All candidates, in an order that depends on the space only; simple ones come before their refinements. Throws a user
/// error (stage "plan") if what is fixed leaves none.
std::vector<Choice> choices(const Space& space);

}  // namespace tessera::plan
