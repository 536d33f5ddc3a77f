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
#include "tessera/runtime/state_store.h"

namespace tessera::runtime {

/// What one rank keeps between runs: its shards of the states, their packed forms, its communicators and its arena.
/// Programs of one mesh share it: a state of two programs that is the same part of the same data is there once. Used
/// only from the rank's own thread.
class RankState {
 public:
  /// `limit` must outlive the state, which holds of it the memory of what it keeps. Null: nothing will run, so weights
  /// are not packed, only sized. `states`: the rank's, which must outlive it, too.
  RankState(const Mesh& mesh, int rank, int threads, device::MemoryLimit* limit, RankStates& states,
            std::shared_ptr<device::Device> device = device::make_cpu());

  int rank() const { return rank_; }
  int threads() const { return threads_; }
  /// The process', or the device's if that is less; null where nothing will run.
  const device::MemoryLimit* memory_limit() const;
  const std::vector<int64_t>& coordinates() const { return coordinates_; }
  const Mesh& mesh() const { return mesh_; }

  device::Device& device() const { return *device_; }
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

  /// Runs the program's init (spmd/init.h), unless that has been done for the same data. What it made and nobody has
  /// asked for goes with the result; asked for later, it is made again.
  [[nodiscard]] std::shared_ptr<const void> initialize(const RankPrograms& programs);
  /// The tensor where the device's kernels can read it: itself, or a copy. `name`: for errors.
  Tensor resident(const Tensor& tensor, std::string_view name);
  /// The same for a constant of a program, of which the rank keeps one copy.
  const Tensor& constant(const Value* constant);
  /// The rank's shard of a state of the program that it runs, where the device's kernels can read it.
  const Tensor& shard(const RankPrograms& programs, const Value* state);
  /// The same for the host: part of a mapped file where the shard lies in one piece there, else a copy; or what init
  /// made.
  const Tensor& host_shard(const RankPrograms& programs, const Value* state);
  /// The rank's shard of a state that changes, which begins as a copy of the state's initial data. A user error if
  /// another program that shares the states has the state cut in another way.
  StateSlot& slot(const RankPrograms& programs, const Value* state);
  /// Gives the slot a spare.
  void need_spare(StateSlot& slot);
  RankStates& states() { return states_; }
  /// The packed form of a state, made once by running `pack` (a PackWeight node), whose operands are the state and what
  /// is packed with it. The packed operator does not read `spared`, so that their plain forms may go.
  const Tensor& packed(const RankPrograms& programs, const Value* state, const std::string& key, const Node& pack,
                       size_t bytes, const std::vector<const Value*>& spared);
  /// Drops what it keeps of these programs' states only. Nothing that was made for them may be used any more.
  void forget(const RankPrograms& programs);
  /// To be called where all plans are gone: values of programs may go, too, and others may lie where they lay.
  void forget_values();

  /// The kernels of this rank's plans.
  bind::KernelCache& kernels() { return kernels_; }

  /// This rank's communicator of the group over `axes` (as a node names them), for memory of the device. Null world:
  /// nothing may be asked.
  void connect(comm::World* world);
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
  size_t peak_bytes(size_t arena) const { return std::max(arena + state_bytes(), load_peak_); }
  /// Bytes of the arena and of the host's copies: the most that earlier runs and one of this program need.
  size_t bytes_to_run(const bind::MachineProgram& machine) const {
    return std::max(arena_bytes_, machine.arena_bytes) + std::max(staging_bytes_, machine.staging_bytes);
  }
  /// Throws a user error that names the largest of `pieces` if the device has no room for the arena beside what the
  /// rank keeps there.
  void require_room(const bind::MachineProgram& machine,
                    const std::function<std::vector<device::NamedBytes>()>& pieces) const;

 private:
  /// Data and the part of it that is the rank's: the same for the same state of several programs.
  struct Part {
    std::string name;  ///< of the state
    std::string type;  ///< its dtype and the extents of the part
    const std::byte* data = nullptr;
    std::string sharding;
    auto operator<=>(const Part&) const = default;
  };
  const Part& part_of(const RankPrograms& programs, const Value* state);
  Dims shard_dims(const Value* state) const;
  void name_derived(const RankPrograms& programs);
  void make(const RankPrograms& programs, const std::vector<const Value*>& derived);
  Tensor made(const RankPrograms& programs, const Value* derived);
  void note_load_peak();
  Tensor cut(const RankPrograms& programs, const Value* state) const;
  void copy_initial(const RankPrograms& programs, const Value* state, void* to) const;
  device::Memory memory(size_t bytes, const char* what);
  /// Counts memory of the device, in the process' limit too.
  std::shared_ptr<const void> hold(size_t bytes, std::string_view what);
  using Made = std::function<std::unique_ptr<comm::Communicator>(std::unique_ptr<comm::Communicator>)>;
  std::unique_ptr<comm::Communicator> join(const std::vector<int>& members, const std::string& axes, const Made& made);

  Mesh mesh_;
  int rank_;
  int threads_;
  device::MemoryLimit* limit_;
  RankStates& states_;
  std::vector<int64_t> coordinates_;
  std::map<const Value*, Part> parts_;
  std::map<Part, Tensor> shards_;    // for the host
  std::map<Part, Tensor> resident_;  // copies of the device, where it has memory of its own
  std::map<std::pair<Part, std::string>, Tensor> packed_;
  std::map<Part, Tensor> made_;               // by init, and not asked for yet
  std::set<Part> initialized_;                // what init has made, now or before
  size_t load_peak_ = 0;                      // the most that was held while init ran and its results were packed
  std::map<const Value*, Tensor> constants_;  // copies of the device
  bind::KernelCache kernels_;
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
