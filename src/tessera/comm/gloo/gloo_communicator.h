#pragma once

#include "tessera/comm/gloo/gloo_fabric.h"
#include "tessera/comm/gloo/gloo_messages.h"
#include "tessera/comm/gloo/gloo_queue.h"
#include "tessera/comm/remote/remote_communicator.h"

namespace tessera::comm {

/// One process's membership of a group, as a Gloo context of its own.
class GlooCommunicator : public RemoteCommunicator {
 public:
  GlooCommunicator(std::shared_ptr<GlooFabric> fabric, std::span<const int> members);
  ~GlooCommunicator() override;

 protected:
  std::unique_ptr<Transfer> begin(Staged& staged, uint64_t number) override;
  bool library_adds(const Operation& operation) const override {
    return operation.kind != Kind::reduce_scatter && !messages_.suits(operation);
  }

 private:
  class Collective;

  std::shared_ptr<GlooFabric> fabric_;
  std::shared_ptr<GlooContext> context_;  // none in a group of one
  GlooMessages messages_;
  GlooQueue queue_;
};

}  // namespace tessera::comm
