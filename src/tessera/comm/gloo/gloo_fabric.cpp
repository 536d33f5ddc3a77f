#include "tessera/comm/gloo/gloo_fabric.h"

#include <gloo/transport/tcp/device.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/comm/group.h"
#include "tessera/comm/hosts.h"

namespace tessera::comm {
namespace {

/// How long a wait for the store lasts before the waiter looks for notices.
constexpr std::chrono::milliseconds kStoreWait{20};
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

GlooFabric::GlooFabric(const Launched& launch, const WorldOptions& options, int most_direct)
    : rank_(launch.rank),
      size_(launch.size),
      most_direct_(most_direct),
      timeout_(options.timeout),
      join_timeout_(options.join_timeout) {
  // Makes a write to a dead peer an error for Gloo, instead of a signal that ends this process.
  if (std::signal(SIGPIPE, SIG_IGN) != SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
  if (rank_ == 0) server_ = std::make_unique<StoreServer>(launch.address, launch.port, size_);
  client_ = std::make_unique<StoreClient>(launch.address, launch.port, rank_, size_, timeout_, join_timeout_);
  watch_ = std::make_shared<Watch>(rank_, size_, timeout_, join_timeout_, *client_);
  device_ = make_device(*client_);
}

GlooFabric::~GlooFabric() {
  // Connections close only when all ranks have finished; otherwise messages under way would be lost.
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
  client_->set(here(rank_), std::to_string(this_host()));
  // Ranks that arrive before the world is complete wait here, where the message can say who is missing.
  std::vector<int> missing(members.begin(), members.end());
  auto step = [&] {
    while (!missing.empty()) {
      const std::optional<std::string> host = client_->get(here(missing.back()), kStoreWait);
      if (!host) return false;
      std::lock_guard lock(mutex_);
      hosts_[missing.back()] = std::strtoll(host->c_str(), nullptr, 10);
      missing.pop_back();
    }
    return true;
  };
  watch_->wait_for_members(members, step);
  const int me = member_of(rank_, members, size_), size = static_cast<int>(members.size());
  auto context = std::make_shared<GlooContext>(me, size, device_);
  auto key = [&](int from, int to) { return fmt::format("{}address/{}/{}", prefix, from, to); };
  for (int other = 0; other < size; ++other)
    if (other != me) client_->set(key(me, other), context->address_for(other));
  for (int other = 0; other < size; ++other) {
    if (other == me) continue;
    std::optional<std::string> address;
    watch_->wait_for_members(members, [&] {
      address = client_->get(key(other, me), kStoreWait);
      return address.has_value();
    });
    connect(*context, members, other, *address);
  }
  return context;
}

DirectPlan::Group GlooFabric::group_of(std::span<const int> members) {
  std::lock_guard lock(mutex_);
  std::vector<int64_t> hosts;
  for (int member : members) hosts.push_back(hosts_[member]);
  return {static_cast<int>(members.size()), most_direct_, DirectPlan::share_links(hosts)};
}

/// A member may end instead of connecting; the alarm checks for that, and for the deadline.
void GlooFabric::connect(GlooContext& context, std::span<const int> members, int other, const std::string& address) {
  const auto deadline = std::chrono::steady_clock::now() + join_timeout_;
  std::atomic<bool> late{false};
  std::string failure;
  try {
    Alarm::Set alarm(alarm_, [&] {
      late = std::chrono::steady_clock::now() >= deadline;
      if (late || watch_->ended()) context.give_up_on(other);
    });
    context.connect(other, address);
  } catch (const std::exception& error) {
    failure = error.what();
  }
  // Whoever ends a run closes its connections, maybe before others have heard why.
  constexpr std::chrono::milliseconds kSlice{10}, kNews{1000};
  for (auto waited = kSlice; !failure.empty() && !late && !watch_->ended() && waited <= kNews; waited += kSlice)
    std::this_thread::sleep_for(kSlice);
  watch_->check_alive();
  if (late && failure.empty()) failure = fmt::format("it takes longer than {} ms", join_timeout_.count());
  if (!failure.empty())
    fail_running("gloo",
                 "group {}: rank {} cannot connect to rank {}: {}; TESSERA_GLOO_INTERFACE says which interface to use",
                 group_text(members), rank_, members[static_cast<size_t>(other)], failure);
}

}  // namespace tessera::comm
