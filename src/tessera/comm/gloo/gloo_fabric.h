#pragma once

#include <gloo/transport/device.h>

#include <map>
#include <memory>
#include <span>
#include <string>

#include "tessera/comm/communicator.h"
#include "tessera/comm/gloo/alarm.h"
#include "tessera/comm/gloo/gloo_context.h"
#include "tessera/comm/launch.h"
#include "tessera/comm/remote/direct_plan.h"
#include "tessera/comm/remote/watch.h"
#include "tessera/comm/rendezvous/store_client.h"
#include "tessera/comm/rendezvous/store_server.h"

namespace tessera::comm {

/// State shared by the communicators of one process: its connection to the others.
class GlooFabric {
 public:
  /// Rank 0 serves the store at the launch's address; all connect to it. Gloo uses the interface
  /// TESSERA_GLOO_INTERFACE, or else the address by which this machine reaches the store.
  /// `most_direct`: the largest group whose small collectives are messages between every two members (DirectPlan).
  GlooFabric(const Launched& launch, const WorldOptions& options, int most_direct);
  ~GlooFabric();

  int rank() const { return rank_; }
  int size() const { return size_; }
  Alarm& alarm() { return alarm_; }
  Watch& watch() { return *watch_; }
  std::shared_ptr<Watch> shared_watch() { return watch_; }

  /// Makes a context for one membership: connects the members, waiting for them under the watch.
  std::shared_ptr<GlooContext> connect(std::span<const int> members);
  /// The group of members that have been connected.
  DirectPlan::Group group_of(std::span<const int> members);

 private:
  void connect(GlooContext& context, std::span<const int> members, int other, const std::string& address);

  int rank_, size_, most_direct_;
  std::chrono::milliseconds timeout_, join_timeout_;
  std::unique_ptr<StoreServer> server_;  // rank 0's
  std::unique_ptr<StoreClient> client_;
  std::shared_ptr<Watch> watch_;
  std::shared_ptr<gloo::transport::Device> device_;
  Alarm alarm_{std::chrono::milliseconds(20)};  // interrupts Gloo's waits, so that they look for notices
  std::mutex mutex_;
  std::map<std::string, int> joined_;  // by group: how often
  std::map<int, int64_t> hosts_;       // by rank, of those met
};

}  // namespace tessera::comm
