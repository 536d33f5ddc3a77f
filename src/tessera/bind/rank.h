#pragma once

#include "tessera/bind/communication.h"
#include "tessera/bind/kernel_cache.h"
#include "tessera/bind/machine.h"
#include "tessera/device/memory_limit.h"
#include "tessera/kernels/packing.h"
#include "tessera/mesh/mesh.h"

namespace tessera::bind {

/// If only the device holds a state, kernels are prepared from its elements only up to this many bytes.
inline constexpr size_t kMostKnown = size_t{64} << 10;

/// A weight that a step reads in a packed form.
struct WeightToPack {
  const Value* weight = nullptr;        ///< a state
  const kernels::PackedLayout& layout;  ///< of the packed form
  Dims dims;                            ///< of the shard, or of the part of it that is packed
  int64_t begin = 0;                    ///< the shard's first element that is packed
  std::vector<const Value*> beside;     ///< values that are packed with it; entries may be null
  std::vector<const Value*> spared;  ///< values that the packed operator does not read, whose plain forms may be freed
  std::string key;                   ///< equal for equal forms of the weight with the same values beside it
};

/// What binding needs from the rank: its coordinates, its device, and the addresses of its states. In a dry run,
/// addresses are arbitrary.
class Rank {
 public:
  virtual ~Rank() = default;

  virtual const Mesh& mesh() const = 0;
  virtual const std::vector<int64_t>& coordinates() const = 0;
  virtual int threads() const = 0;
  virtual const device::Device& device() const = 0;
  /// Null in a dry run.
  virtual const device::MemoryLimit* memory_limit() const = 0;
  virtual KernelCache& kernels() = 0;

  /// The tensor in memory that the device's kernels can read: itself, or a copy. `name`: for errors.
  virtual Tensor resident(const Tensor& tensor, std::string_view name) = 0;
  /// The same for a constant of the program, which the rank keeps.
  virtual const Tensor& constant(const Value* constant) = 0;
  /// This rank's shard of a state that never changes, in memory that kernels read, and in memory that the host reads.
  virtual const Tensor& shard(const Value* state) = 0;
  virtual const Tensor& host_shard(const Value* state) = 0;
  /// The packed form of a weight. The rank makes it once.
  virtual const Tensor& packed(const WeightToPack& wanted) = 0;
  /// This rank's shard of a state that changes.
  virtual StateSlot& slot(const Value* state) = 0;
  /// Gives the slot memory for a second value.
  virtual void need_spare(StateSlot& slot) = 0;

  /// One communication, or collectives that start as one: operand and result i are those of node i. Fills in the
  /// fields of `info` that describe communication.
  virtual std::unique_ptr<Communication> prepare_communication(const std::vector<const Node*>& nodes,
                                                               const SymbolLookup& symbols, StepInfo& info) = 0;
};

}  // namespace tessera::bind
