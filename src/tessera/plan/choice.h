#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/mesh/mesh.h"
#include "tessera/plan.h"

/// The candidates of a search for a plan.
namespace tessera::plan {

/// A candidate, with all that a plan decides.
struct Choice {
  Mesh mesh;
  std::string presets;
  std::string tensor;              ///< of these, those that split tensors within a layer: "megatron+sequence"
  bool stores_parameters = false;  ///< stored split, and gathered for their uses
  bool keeps_gathered = false;
  int micro_batches = 1;
  std::string recompute;                           ///< "none", "selective", "full"; "" without a training step
  std::optional<int64_t> bucket_bytes;             ///< nullopt: chosen for the links
  std::map<std::string, std::string> annotations;  ///< layouts of parameters, by pattern, beside those of the presets
  /// Number of its mesh, presets and gathers: without annotations, equal numbers mean equal layouts.
  size_t layout = 0;
  size_t kernels = 0;  ///< number of all but its buckets; equal numbers mean equal kernels
  /// The most parts into which a parameter, or a state of the optimizer, may be split.
  int64_t parameter_shards = 1, optimizer_shards = 1;

  /// The size of an axis; 1 if the mesh lacks it.
  int64_t size_of(std::string_view axis) const;
  /// Ranks over which the batch is split.
  int64_t data_ranks() const { return size_of("dp") * size_of("fsdp"); }
  /// Ranks over which the tokens of a batch are split.
  int64_t token_ranks() const { return data_ranks() * size_of("cp"); }
  /// "dp=4,tp=2, zero1+megatron, 2 micro-batches, recompute=full"
  std::string str() const;
  /// `fixed`, with what the candidate decides.
  Plan over(const Plan& fixed) const;
};

/// Which candidates there are.
struct Space {
  int64_t devices = 1;
  bool trains = false;
  bool has_experts = false;  ///< then the axis ep is searched
  int64_t context = 0;       ///< tokens of a sequence that attention sees; if more than one, the axis cp is searched
  int64_t batch = 1;         ///< samples of a step
  Plan fixed;                ///< what it gives is not searched
};

/// All candidates, in an order that depends on the space only; simple ones come before their refinements. Throws a user
/// error (stage "plan") if what is fixed leaves none.
std::vector<Choice> choices(const Space& space);

}  // namespace tessera::plan
