#include "tessera/comm/gloo/gloo_fabric.h"

#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include <csignal>
#include <cstdlib>

#include "tessera/base/error.h"
#include "tessera/comm/group.h"

namespace tessera::comm {
namespace {

/// How long a wait for the store lasts before the waiter looks around.
constexpr std::chrono::milliseconds kLook{20};
/// Gloo's own deadline, which would end a run that only computes for long; waits have theirs.
constexpr std::chrono::hours kForever{24 * 365};

/// One group's part of the run's store, as Gloo asks for it.
class GroupStore : public gloo::rendezvous::Store {
 public:
  GroupStore(StoreClient& client, Watch& watch, std::string prefix, std::chrono::milliseconds timeout)
      : client_(client), watch_(watch), prefix_(std::move(prefix)), timeout_(timeout) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    client_.set(prefix_ + key, std::string(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout_;
    while (true) {
      watch_.check_alive();
      if (auto value = client_.get(prefix_ + key, kLook)) return {value->begin(), value->end()};
      if (std::chrono::steady_clock::now() >= deadline)
        fail_running("gloo", "'{}{}' is not said within {} ms", prefix_, key, timeout_.count());
    }
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) get(key);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override { wait(keys); }

 private:
  StoreClient& client_;
  Watch& watch_;
  std::string prefix_;
  std::chrono::milliseconds timeout_;
};

std::shared_ptr<gloo::transport::Device> make_device(const StoreClient& client) {
  gloo::transport::tcp::attr attributes;
  const char* interface = std::getenv("TESSERA_GLOO_INTERFACE");
  if (interface != nullptr)
    attributes.iface = interface;
  else
    attributes.hostname = client.local_address();
  try {
    return gloo::transport::tcp::CreateDevice(attributes);
  } catch (const std::exception& error) {
    fail("gloo", "no device at {}: {}; set TESSERA_GLOO_INTERFACE to a network interface of this machine",
         interface != nullptr ? std::string(interface) : attributes.hostname, error.what());
  }
}

}  // namespace

GlooFabric::GlooFabric(const Launch& launch, const WorldOptions& options)
    : rank_(launch.rank), size_(launch.size), timeout_(options.timeout) {
  // A write to a peer that has died is an error to Gloo, not a signal that ends this process.
  if (std::signal(SIGPIPE, SIG_IGN) != SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
  if (rank_ == 0) server_ = std::make_unique<StoreServer>(launch.address, launch.port, size_);
  client_ = std::make_unique<StoreClient>(launch.address, launch.port, rank_, size_, timeout_);
  watch_ = std::make_shared<Watch>(rank_, size_, timeout_, *client_);
  device_ = make_device(*client_);
}

GlooFabric::~GlooFabric() {
  // Connections close when all are through: what is still under way would be lost with them.
  if (!watch_->ended()) client_->farewell(timeout_);
}

std::shared_ptr<GlooContext> GlooFabric::connect(std::span<const int> members) {
  const std::string group = group_text(members);
  std::string prefix;
  {
    std::lock_guard lock(mutex_);
    prefix = fmt::format("{}#{}/", group, ++joined_[group]);
  }
  auto here = [&](int rank) { return fmt::format("{}here/{}", prefix, rank); };
  client_->set(here(rank_), "");
  // Gloo's own connecting cannot be given up: it begins only when all are here.
  std::vector<int> missing(members.begin(), members.end());
  auto step = [&] {
    while (!missing.empty() && client_->get(here(missing.back()), kLook)) missing.pop_back();
    return missing.empty();
  };
  watch_->wait_for_members(members, step);
  auto context = std::make_shared<GlooContext>(member_of(rank_, members, size_), static_cast<int>(members.size()));
  context->setTimeout(timeout_);
  GroupStore store(*client_, *watch_, prefix, timeout_);
  try {
    context->connectFullMesh(store, device_);
  } catch (const gloo::Exception& error) {
    watch_->check_alive();
    fail_running("gloo", "group {} cannot connect: {}; TESSERA_GLOO_INTERFACE says which interface to use", group,
                 error.what());
  }
  context->setTimeout(kForever);
  return context;
}

}  // namespace tessera::comm
