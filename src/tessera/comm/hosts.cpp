#include "tessera/comm/hosts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <fstream>
#include <functional>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tessera/base/descriptor.h"
#include "tessera/comm/flight.h"

namespace tessera::comm {
namespace {

constexpr std::chrono::milliseconds kLook{20};

// The numbers that ranks exchange, an int64 each.
std::vector<int64_t> gathered(Communicator& all, int64_t own) {
  std::vector<int64_t> values(static_cast<size_t>(all.size()));
  const std::vector<int64_t> counts(values.size(), 1);
  all.run({.kind = Kind::all_gather,
           .dtype = DType::int64,
           .in = &own,
           .out = values.data(),
           .counts = counts,
           .label = "hosts"});
  return values;
}

class WorldOfHosts : public World {
 public:
  WorldOfHosts(std::shared_ptr<World> network, std::unique_ptr<World> memory, int rank, std::vector<int> host)
      : network_(std::move(network)),
        memory_(std::move(memory)),
        rank_(rank),
        host_(std::move(host)),
        messenger_([this](std::stop_token stop) { pass_on_end(stop); }) {}

  int size() const override { return network_->size(); }
  std::vector<int> local_ranks() const override { return {rank_}; }
  std::shared_ptr<std::byte[]> allocate(int rank, size_t bytes, const char* what) override {
    return memory_->allocate(rank, bytes, what);
  }
  std::unique_ptr<Communicator> join(int rank, std::span<const int> members) override {
    const bool near = std::all_of(members.begin(), members.end(),
                                  [&](int member) { return std::binary_search(host_.begin(), host_.end(), member); });
    return (near ? *memory_ : *network_).join(rank, members);
  }
  bool advances_by_tests() const override { return network_->advances_by_tests(); }
  void abort(int rank, std::string_view message, ErrorKind kind) override {
    memory_->abort(rank, message, kind);
    network_->abort(rank, message, kind);
  }
  std::optional<End> end() const override {
    std::optional<End> near = memory_->end();
    return near ? near : network_->end();
  }
  bool first_has_heard(std::chrono::milliseconds most) override { return network_->first_has_heard(most); }
  Flight* flight(int rank) override { return memory_->flight(rank); }

 private:
  // A rank that waits in shared memory does not listen to the network, which carries the news that a rank has died.
  void pass_on_end(std::stop_token stop) {
    try {
      wait_for_end(stop);
    } catch (const std::exception& error) {  // the network's own failure, of which nobody else hears
      memory_->abort(-1, error.what(), ErrorKind::running);
    }
  }

  void wait_for_end(const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any changed;
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, stop, kLook, [] { return false; }) && !stop.stop_requested()) {
      if (memory_->end()) return;
      const std::optional<End> end = network_->end();
      if (!end) continue;
      const Flight* flight = end->rank >= 0 ? memory_->flight(end->rank) : nullptr;
      const std::string step = flight ? step_of(*flight) : "";
      memory_->abort(-1, step.empty() ? end->reason : end->reason + "; it was in " + step, end->kind);
      return;
    }
  }

  std::shared_ptr<World> network_;
  std::unique_ptr<World> memory_;
  int rank_;
  std::vector<int> host_;  // its ranks, ascending
  std::jthread messenger_;
};

}  // namespace

int64_t this_host() {
  std::string text;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), text);
  for (const char* space : {"/proc/self/ns/net", "/proc/self/ns/pid"}) {
    struct stat facts {};
    stat(space, &facts);
    text += fmt::format(" {}", facts.st_ino);
  }
  return static_cast<int64_t>(std::hash<std::string>()(text));
}

std::shared_ptr<World> share_memory_within_hosts(std::shared_ptr<World> network, int rank, const WorldOptions& options,
                                                 int64_t host_id) {
  std::vector<int> everyone(static_cast<size_t>(network->size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  const auto all = network->join(rank, everyone);
  const std::vector<int64_t> hosts = gathered(*all, host_id);
  std::vector<int> host;
  for (int other : everyone)
    if (hosts[other] == hosts[rank]) host.push_back(other);

  // The first rank of a host makes the memory; the others open it through that process' files.
  Descriptor file(host.front() == rank ? create_shared_memory(network->size()) : -1);
  const int64_t place = file.get() < 0 ? 0 : (static_cast<int64_t>(getpid()) << 32) | file.get();
  const int64_t first = gathered(*all, place)[host.front()];
  std::unique_ptr<World> memory;
  if (file.get() < 0)
    file = Descriptor(open(fmt::format("/proc/{}/fd/{}", first >> 32, first & 0xffffffff).c_str(), O_RDWR | O_CLOEXEC));
  try {
    if (file.get() >= 0) memory = make_shared_world(file.get(), rank, options);
  } catch (const std::exception&) {
    memory = nullptr;  // there may be no room for it
  }
  const std::vector<int64_t> ready = gathered(*all, memory ? 1 : 0);  // and nobody opens it from now on
  if (!std::all_of(host.begin(), host.end(), [&](int other) { return ready[other] == 1; })) return network;
  return std::make_shared<WorldOfHosts>(std::move(network), std::move(memory), rank, std::move(host));
}

}  // namespace tessera::comm
