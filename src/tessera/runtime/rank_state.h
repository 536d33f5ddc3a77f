#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "tessera/bind/kernel_cache.h"
#include "tessera/runtime/communicators.h"
#include "tessera/runtime/member_extents.h"
#include "tessera/runtime/queues.h"
#include "tessera/runtime/rank_memory.h"
#include "tessera/runtime/rank_programs.h"
#include "tessera/runtime/state_store.h"
#include "tessera/runtime/weight_store.h"

namespace tessera::runtime {

/// What one rank keeps between runs: its states, its communicators and its arena. Programs of one mesh share it. Used
/// only from the rank's own thread.
class RankState {
 public:
  /// A rank that runs. `limit`, which counts the memory of what it keeps, and `states`, the rank's, must outlive it.
  /// `shared`: the weights of all ranks of this process.
  RankState(const Mesh& mesh, int rank, int threads, device::MemoryLimit& limit, RankStates& states,
            std::shared_ptr<device::Device> device, std::shared_ptr<SharedWeights> shared);
  /// A rank in a dry run, which only counts the bytes that it would keep. Refuses a single tensor that exceeds `limit`;
  /// null: no limit.
  RankState(const Mesh& mesh, int rank, int threads, RankStates& states,
            std::shared_ptr<device::Device> device = device::make_cpu(), const device::MemoryLimit* limit = nullptr);
  /// Another state of the same kind, of the same rank, for a program with other states.
  RankState(RankState& other, RankStates& states);

  int rank() const { return rank_; }
  int threads() const { return threads_; }
  const std::vector<int64_t>& coordinates() const { return coordinates_; }
  const Mesh& mesh() const { return mesh_; }
  device::Device& device() const { return *memory_->device(); }

  /// In a dry run: lets plans of the other rank state, which runs, reuse the kernels of plans made here.
  void plan_for(RankState& other);
  /// Of all members of its groups, for communications.
  MemberExtents& member_extents() { return member_extents_; }
  /// The kernels of this rank's plans.
  bind::KernelCache& kernels() { return shared_kernels_ ? *shared_kernels_ : kernels_; }

  /// Null: communicators and queues must not be used.
  void connect(comm::World* world);
  Communicators& communicators() { return communicators_; }
  Queues& queues() { return queues_; }
  RankMemory& memory() { return *memory_; }
  const RankMemory& memory() const { return *memory_; }
  const InitialData& initial() const { return initial_; }
  WeightStore& weights() { return weights_; }
  const WeightStore& weights() const { return weights_; }
  RankStates& states() const { return states_; }

  /// A constant of a program in memory that the device's kernels can read. The rank keeps one copy.
  const Tensor& constant(const Value* constant);
  /// The rank's shard of a state that changes; at first, a copy of the initial data. A user error if another program
  /// that shares the states divides the state in another way.
  StateSlot& slot(const RankPrograms& programs, const Value* state);
  /// Gives the slot memory for a second value.
  void need_spare(StateSlot& slot);
  /// Drops what it keeps for these programs alone. Nothing that was made for them may be used any more.
  void forget(const RankPrograms& programs);
  /// Call it when all plans are gone: values of programs may go then, and others may take their addresses.
  void forget_values();
  /// Never frees the arena and the shards, because communications that were under way when a run failed may still use
  /// them.
  void abandon_memory();

  /// Bytes of states that this rank holds: shards (mapped or copied), with the spares of those that change, and packed
  /// forms.
  size_t state_bytes() const;
  /// The most memory that runs with an arena of that size have taken, loading included.
  size_t peak_bytes(size_t arena) const { return std::max(arena + state_bytes(), weights_.load_peak().bytes); }
  /// Bytes of states that change, with their spares, and of the device's copies of constants.
  size_t changing_bytes() const { return states_.bytes() + constant_bytes(); }
  size_t constant_bytes() const;

 private:
  Mesh mesh_;
  int rank_;
  int threads_;
  RankStates& states_;
  std::vector<int64_t> coordinates_;
  InitialData initial_;
  Communicators communicators_;
  std::unique_ptr<RankMemory> memory_;
  std::map<const Value*, Tensor> constants_;  // copies of the device
  bind::KernelCache kernels_;
  bind::KernelCache* shared_kernels_ = nullptr;  // of the rank that will run
  WeightStore weights_;
  MemberExtents member_extents_;
  Queues queues_;  // after the rest, since their work may use it
};

}  // namespace tessera::runtime
