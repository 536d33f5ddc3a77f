#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "tessera/device/device.h"
#include "tessera/runtime/communicators.h"

namespace tessera::runtime {

/// The queues of one rank's device. Used only from the rank's own thread, while its communicators are connected.
class Queues {
 public:
  /// The arguments must outlive it. `threads`: of the rank's team.
  Queues(device::Device& device, int threads, Communicators& communicators)
      : device_(device), threads_(threads), communicators_(communicators) {}
  ~Queues() { settle(); }
  Queues(const Queues&) = delete;
  Queues& operator=(const Queues&) = delete;

  /// The one that computes.
  device::Queue& compute() { return of(""); }
  /// By its name among bind::MachineProgram::queues.
  device::Queue& of(const std::string& name);
  /// Blocks until the device has done all that was enqueued. Throws the first failure, and the reason if the run has
  /// ended meanwhile.
  void finish();
  /// `look` is called while finish() waits, every few milliseconds. What it throws ends the run on all ranks, and
  /// finish() throws it. Null: nothing ends the wait but the run's end.
  void heed(std::function<void()> look) { look_ = std::move(look); }
  /// After a failed run: ends the communications that are under way, and drops failures. If the world has not ended,
  /// communications may wait for their peers until their timeout.
  void settle() noexcept;
  /// Settles and ends the queues. Later calls make new ones, which note what they do in the new world.
  void reset();

 private:
  device::Device& device_;
  int threads_;
  Communicators& communicators_;
  std::function<void()> look_;
  std::map<std::string, std::unique_ptr<device::Queue>> queues_;  // by name, that which computes first
};

}  // namespace tessera::runtime
