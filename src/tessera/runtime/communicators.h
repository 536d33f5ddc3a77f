#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/bind/communication.h"
#include "tessera/comm/communicator.h"
#include "tessera/comm/fault.h"
#include "tessera/comm/flight.h"
#include "tessera/device/device.h"
#include "tessera/runtime/rank_programs.h"

namespace tessera::runtime {

/// How one rank reaches the others: its communicators in a world, and the communications that are under way. Used only
/// from the rank's own thread.
class Communicators {
 public:
  Communicators(const Mesh& mesh, int rank, std::shared_ptr<device::Device> device);

  /// All that is asked from now on is of this world, which must outlive it. Null: nothing may be asked.
  void connect(comm::World* world);
  comm::World* world() const { return world_; }
  /// The group over `axes` (as a node names them), for memory of the device.
  comm::Communicator& of(const std::vector<std::string>& axes);
  /// All ranks, for what is not in the program and lies in memory of the host.
  comm::Communicator& everyone();
  /// Joins all groups that some rank's program communicates over and this rank is a member of. Members in other
  /// processes wait for each other there, so all ranks do this before they run, in one order.
  void join_groups(const RankPrograms& programs);

  /// Throws the reason if the run has ended: a peer has failed or died.
  void require_going_on() const;
  /// Ends the communications of the program that are under way on the device.
  void abandon();

  /// Where this rank notes what it does.
  comm::Flight& flight();
  /// To be called as the rank begins a communication of the program; TESSERA_FAULT may want it to fail (comm/fault.h).
  void count() { faults_->count(); }
  /// Memory in which others may read what this rank writes.
  std::shared_ptr<std::byte[]> shared_memory(size_t bytes, const char* what);

  /// See World; false without one.
  bool advance_by_tests() const { return world_ && world_->advances_by_tests(); }
  /// These note the communications of a run that have started and not ended. advance() lets them advance if the world
  /// leaves that to its callers.
  void note_start(bind::Communication* communication) { under_way_.push_back(communication); }
  void note_end(bind::Communication* communication) { std::erase(under_way_, communication); }
  void forget_under_way() { under_way_.clear(); }
  void advance();

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
  std::chrono::steady_clock::time_point advanced_;  // when they were last let advance
};

}  // namespace tessera::runtime
