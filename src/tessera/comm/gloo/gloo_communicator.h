#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "tessera/comm/gloo/gloo_fabric.h"
#include "tessera/comm/gloo/gloo_messages.h"
#include "tessera/comm/remote/remote_communicator.h"

namespace tessera::comm {

/// One process's membership of a group, as a Gloo context of its own. Gloo's collectives return when they are through,
/// so a thread runs those that have been started, in order.
class GlooCommunicator : public RemoteCommunicator {
 public:
  GlooCommunicator(std::shared_ptr<GlooFabric> fabric, std::span<const int> members);
  ~GlooCommunicator() override;

 protected:
  std::unique_ptr<Transfer> begin(Staged& staged, uint64_t number) override;

 private:
  class Collective;
  /// A started collective, shared with its transfer.
  struct Job {
    Staged* staged;
    uint64_t number;
    bool done = false;
    std::exception_ptr failure;
  };

  void work();

  std::shared_ptr<GlooFabric> fabric_;
  std::shared_ptr<GlooContext> context_;  // none in a group of one
  GlooMessages messages_;
  std::mutex mutex_;
  std::condition_variable started_, ended_;
  std::deque<std::shared_ptr<Job>> jobs_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tessera::comm
