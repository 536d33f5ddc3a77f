#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/function_ref.h"
#include "tessera/bind/communication.h"
#include "tessera/comm/communicator.h"
#include "tessera/comm/fault.h"
#include "tessera/comm/flight.h"
#include "tessera/device/device.h"
#include "tessera/runtime/progress_thread.h"
#include "tessera/runtime/rank_programs.h"

namespace tessera::runtime {

/// One rank's communicators in a world, and its communications that are under way. Only the rank's own thread calls
/// it, and the thread of advance_beside() for a while. The communicators that it has made are also used by the threads
/// of a device's queues, each by one of them at a time.
class Communicators {
 public:
  Communicators(const Mesh& mesh, int rank, std::shared_ptr<device::Device> device);

  /// Uses this world from now on, which must outlive it. Null: only connect() may be called.
  void connect(comm::World* world);
  comm::World* world() const { return world_; }
  /// The group over `axes` (as a node names them), for memory of the device.
  comm::Communicator& of(const std::vector<std::string>& axes);
  /// The group of all ranks, for communication outside of programs, in memory of the host.
  comm::Communicator& everyone();
  /// Joins all groups of this rank over which some rank's program communicates. Members in other processes wait for
  /// each other, so all ranks call this before they run, in the same order.
  void join_groups(const RankPrograms& programs);

  /// Throws the reason if the run has ended: a peer has failed or died. Throws the failure of a communication on the
  /// device.
  void require_going_on() const;
  /// Whether the run has ended, as far as this process knows.
  bool has_ended() const { return world_ && world_->end(); }
  /// Ends the run on all ranks.
  void end(const std::exception& error);
  /// Ends the communications of the program that are under way on the device.
  void abandon();

  /// Where this rank notes what it does.
  comm::Flight& flight();
  /// Call it when the rank begins a communication of the program, which TESSERA_FAULT may let fail (comm/fault.h).
  void count() { faults_->count(); }
  /// Memory that other ranks can read.
  std::shared_ptr<std::byte[]> shared_memory(size_t bytes, const char* what);

  /// See World::advances_by_tests(); false without a world.
  bool advance_by_tests() const { return world_ && world_->advances_by_tests(); }
  /// The communications of a run that have started and not ended. advance() lets these make progress if the world
  /// leaves that to its callers.
  void note_start(bind::Communication* communication) { under_way_.push_back(communication); }
  void note_end(bind::Communication* communication) { std::erase(under_way_, communication); }
  void forget_under_way() { under_way_.clear(); }
  void advance();
  /// Does `work`, which takes long, while another thread calls advance(), if that has an effect.
  void advance_beside(FunctionRef<void()> work);

 private:
  using Made = std::function<std::unique_ptr<comm::Communicator>(std::unique_ptr<comm::Communicator>)>;
  std::unique_ptr<comm::Communicator> join(const std::vector<int>& members, const std::string& axes, const Made& made);

  Mesh mesh_;
  int rank_;
  std::shared_ptr<device::Device> device_;
  comm::World* world_ = nullptr;
  std::map<std::vector<std::string>, std::unique_ptr<comm::Communicator>> by_axes_;
  std::unique_ptr<comm::Communicator> everyone_;
  std::optional<comm::FaultCounter> faults_;
  std::vector<bind::Communication*> under_way_;
  std::chrono::steady_clock::time_point advanced_;  // when advance() last tested them
  ProgressThread progress_{[this] { advance(); }};  // after what it uses
};

}  // namespace tessera::runtime
