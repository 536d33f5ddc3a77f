#pragma once

#include "tessera/bind/communication.h"
#include "tessera/bind/kernel_cache.h"
#include "tessera/bind/machine.h"
#include "tessera/device/memory_limit.h"
#include "tessera/kernels/packing.h"
#include "tessera/mesh/mesh.h"

namespace tessera::bind {

/// Bytes of the largest state whose elements kernels are prepared from, where the host has no use for it otherwise.
inline constexpr size_t kMostKnown = size_t{64} << 10;

/// A weight that a step reads in a packed form.
struct WeightToPack {
  const Value* weight = nullptr;        ///< a state
  const kernels::PackedLayout& layout;  ///< of the form
  Dims dims;                            ///< of what is packed, by itself: the shard, or elements of it
  int64_t begin = 0;                    ///< the first of these elements
  std::vector<const Value*> beside;     ///< what is packed with it; may be null
  std::vector<const Value*> spared;     ///< what the packed operator does not read: plain forms may go
  std::string key;                      ///< equal for equal forms of the weight, with the same values beside it
};

/// What binding asks of the rank for which it binds a program: who it is, what it computes on, and where its states
/// are. Where nothing will run, the addresses may be any.
class Rank {
 public:
  virtual ~Rank() = default;

  virtual const Mesh& mesh() const = 0;
  virtual const std::vector<int64_t>& coordinates() const = 0;
  virtual int threads() const = 0;
  virtual const device::Device& device() const = 0;
  /// Null where nothing will run.
  virtual const device::MemoryLimit* memory_limit() const = 0;
  /// Whether communications need calls of Communication::advance.
  virtual bool advances_by_tests() const = 0;
  /// Makes these calls for what is under way; long kernels call it now and then.
  virtual void advance() = 0;
  virtual KernelCache& kernels() = 0;

  /// The tensor in memory that the device's kernels read: itself, or a copy. `name`: for errors.
  virtual Tensor resident(const Tensor& tensor, std::string_view name) = 0;
  /// The same for a constant of the program, which the rank keeps.
  virtual const Tensor& constant(const Value* constant) = 0;
  /// This rank's shard of a state that never changes: where kernels read it, and where the host does.
  virtual const Tensor& shard(const Value* state) = 0;
  virtual const Tensor& host_shard(const Value* state) = 0;
  /// The packed form of a weight. The rank makes it once.
  virtual const Tensor& packed(const WeightToPack& wanted) = 0;
  /// This rank's shard of a state that changes.
  virtual StateSlot& slot(const Value* state) = 0;
  /// Gives the slot a spare.
  virtual void need_spare(StateSlot& slot) = 0;

  /// One communication, or collectives that start as one: operand and result i are those of node i. Fills in the
  /// fields of `info` that describe communication.
  virtual std::unique_ptr<Communication> prepare_communication(const std::vector<const Node*>& nodes,
                                                               const SymbolLookup& symbols, StepInfo& info) = 0;
};

}  // namespace tessera::bind
