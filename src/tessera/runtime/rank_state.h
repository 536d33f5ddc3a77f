#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "tessera/bind/kernel_cache.h"
#include "tessera/bind/machine.h"
#include "tessera/comm/communicator.h"
#include "tessera/comm/fault.h"
#include "tessera/comm/flight.h"
#include "tessera/device/device.h"
#include "tessera/runtime/rank_programs.h"
#include "tessera/runtime/rank_weights.h"
#include "tessera/runtime/state_store.h"

namespace tessera::runtime {

/// What one rank keeps between runs: its states, its communicators and its arena. Programs of one mesh share it. Used
/// only from the rank's own thread.
class RankState {
 public:
  /// `limit` must outlive the state, which holds of it the memory of what it keeps. Null: nothing will run, so weights
  /// are not packed, only sized. `states`: the rank's, which must outlive it, too.
  /// `store`: of the weights that ranks of this process share; null: its own.
  RankState(const Mesh& mesh, int rank, int threads, device::MemoryLimit* limit, RankStates& states,
            std::shared_ptr<device::Device> device = device::make_cpu(), std::shared_ptr<WeightStore> store = nullptr);

  int rank() const { return rank_; }
  int threads() const { return threads_; }
  /// The process'; null where nothing will run.
  device::MemoryLimit* limit() const { return limit_; }
  /// To be called where nothing will run: kernels that are prepared here are for the other's plans, too. Refuses any
  /// single tensor that exceeds the other's limit.
  void size_for(RankState& other);
  /// Refuses any single tensor that exceeds this limit.
  void refuse_beyond(const device::MemoryLimit* limit) { refused_beyond_ = limit; }
  /// The process', or the device's if that is less; null where nothing will run.
  const device::MemoryLimit* memory_limit() const;
  const std::vector<int64_t>& coordinates() const { return coordinates_; }
  const Mesh& mesh() const { return mesh_; }

  device::Device& device() const { return *device_; }
  const std::shared_ptr<device::Device>& shared_device() const { return device_; }
  /// Counts memory of the device, in the process' limit too. Waits for room if others are loading, and nothing is
  /// reserved.
  std::shared_ptr<const void> hold(size_t bytes, std::string_view what);
  /// The same of the host.
  std::shared_ptr<const void> hold_on_host(size_t bytes, std::string_view what);
  /// Waits for room for what is held until the result goes: at once, so that no rank waits while it holds what others
  /// wait for.
  [[nodiscard]] std::shared_ptr<const void> reserve(size_t bytes);
  /// The device's. A world must be connected.
  device::Queue& queue(bind::QueueKind kind);
  /// Blocks until the device has done all that was enqueued; throws the first failure.
  void finish();
  /// The same after a failed run; drops failures.
  void settle() noexcept;
  /// Calls `visit` with these bytes of the device, for the host to read.
  void read(const void* from, size_t bytes, const std::function<void(const void*)>& visit);
  /// Calls `fill` with memory of the host for these bytes of the device, and makes it theirs.
  void write(void* to, size_t bytes, const std::function<void(void*)>& fill);

  /// The tensor where the device's kernels can read it: itself, or a copy. `name`: for errors.
  Tensor resident(const Tensor& tensor, std::string_view name);
  /// The same for a constant of a program, of which the rank keeps one copy.
  const Tensor& constant(const Value* constant);
  /// The rank's shard of a state that changes, which begins as a copy of the state's initial data. A user error if
  /// another program that shares the states has the state cut in another way.
  StateSlot& slot(const RankPrograms& programs, const Value* state);
  /// Gives the slot a spare.
  void need_spare(StateSlot& slot);
  RankStates& states() const { return states_; }
  RankWeights& weights() { return weights_; }
  const RankWeights& weights() const { return weights_; }
  /// Drops what it keeps of these programs' states only. Nothing that was made for them may be used any more.
  void forget(const RankPrograms& programs);
  /// To be called where all plans are gone: values of programs may go, too, and others may lie where they lay.
  void forget_values();

  /// The kernels of this rank's plans.
  bind::KernelCache& kernels() { return shared_kernels_ ? *shared_kernels_ : kernels_; }

  /// This rank's communicator of the group over `axes` (as a node names them), for memory of the device. Null world:
  /// nothing may be asked.
  void connect(comm::World* world);
  comm::World* world() const { return world_; }
  comm::Communicator& communicator(const std::vector<std::string>& axes);
  /// This rank's communicator of all ranks, for what is not in the program and lies in memory of the host.
  comm::Communicator& everyone();
  /// Joins all groups that some rank's program communicates over and this rank is a member of. Members in other
  /// processes wait for each other there, so all ranks do this before they run, in one order.
  void join_groups(const RankPrograms& programs);

  /// See World; false without one.
  bool advances_by_tests() const { return world_ && world_->advances_by_tests(); }
  /// These note the communications of a run that have started and not ended. advance() lets them advance if the world
  /// leaves that to its callers.
  void note_start(bind::Communication* communication) { under_way_.push_back(communication); }
  void note_end(bind::Communication* communication) { std::erase(under_way_, communication); }
  void forget_communications() { under_way_.clear(); }
  void advance();

  /// Where this rank notes what it does. A world must be connected.
  comm::Flight& flight();
  /// To be called as the rank begins a communication of the program; TESSERA_FAULT may want it to fail (comm/fault.h).
  void count_communication() { faults_->count(); }
  /// Memory in which others may read what this rank writes.
  std::shared_ptr<std::byte[]> shared_memory(size_t bytes, const char* what);

  /// At least `bytes` bytes of the world's memory, 64-byte aligned; the same on each call unless it had to grow.
  std::byte* arena(size_t bytes);
  /// The same of the host, for copies to and from the device; null for no bytes.
  std::byte* staging(size_t bytes);

  /// Leaves the arena and the shards in memory for good, for communications that were under way as a run failed.
  void abandon_memory();

  /// Bytes of states that this rank holds: shards (mapped or copied), with the spares of those that change, and packed
  /// forms.
  size_t state_bytes() const;
  /// The most memory that runs with an arena of that size have taken, loading included.
  size_t peak_bytes(size_t arena) const { return std::max(arena + state_bytes(), weights_.load_peak().bytes); }
  /// Bytes of states that change, with their spares, and of the device's copies of constants.
  size_t changing_bytes() const { return states_.bytes() + constant_bytes(); }
  size_t constant_bytes() const;
  /// Bytes of the arena and of the host's copies: the most that earlier runs and one of this program need.
  size_t bytes_to_run(const bind::MachineProgram& machine) const {
    return std::max(arena_bytes_, machine.arena_bytes) + std::max(staging_bytes_, machine.staging_bytes);
  }
  /// Throws a user error that names the largest of `pieces` if the device has no room for the arena beside what the
  /// rank keeps there.
  void require_room(const bind::MachineProgram& machine,
                    const std::function<std::vector<device::NamedBytes>()>& pieces) const;

 private:
  device::Memory memory(size_t bytes, const char* what);
  using Made = std::function<std::unique_ptr<comm::Communicator>(std::unique_ptr<comm::Communicator>)>;
  std::unique_ptr<comm::Communicator> join(const std::vector<int>& members, const std::string& axes, const Made& made);

  Mesh mesh_;
  int rank_;
  int threads_;
  device::MemoryLimit* limit_;
  RankStates& states_;
  std::vector<int64_t> coordinates_;
  std::map<const Value*, Tensor> constants_;  // copies of the device
  bind::KernelCache kernels_;
  bind::KernelCache* shared_kernels_ = nullptr;  // of the rank that will run
  const device::MemoryLimit* refused_beyond_ = nullptr;
  RankWeights weights_;
  std::optional<LoadingRoom::Reservation> reserved_;
  comm::World* world_ = nullptr;
  std::map<std::vector<std::string>, std::unique_ptr<comm::Communicator>> communicators_;
  std::unique_ptr<comm::Communicator> everyone_;
  std::optional<comm::FaultCounter> faults_;
  std::shared_ptr<device::Device> device_;
  std::vector<bind::Communication*> under_way_;
  std::chrono::steady_clock::time_point advanced_;  // when they were last let advance
  device::Memory arena_;
  std::shared_ptr<const void> arena_held_;  // of the device's memory
  size_t arena_room_ = 0;
  size_t arena_bytes_ = 0;
  std::shared_ptr<std::byte[]> staging_;
  size_t staging_bytes_ = 0;
  std::unique_ptr<device::Queue> queues_[2];  // by QueueKind; after the rest, since their work may use it
};

}  // namespace tessera::runtime
