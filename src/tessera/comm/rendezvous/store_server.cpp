#include "tessera/comm/rendezvous/store_server.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/comm/plugin.h"
#include "tessera/comm/remote/watch.h"

namespace tessera::comm {
namespace {

constexpr std::chrono::seconds kStoreFarewell{3};
constexpr std::chrono::seconds kLastFarewell{
    1};                                   // once all ranks have joined; by then their last notices have been sent
constexpr size_t kMostOfStranger = 1024;  // bytes of a frame

}  // namespace

StoreServer::StoreServer(const std::string& host, int port, int size) : size_(size), listener_(listen_at(host, port)) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) fail_running("rendezvous", "cannot make a pipe for the rendezvous");
  wake_read_ = Socket(ends[0]);
  wake_write_ = Socket(ends[1]);
  thread_ = std::thread([this] { serve(); });
}

StoreServer::~StoreServer() {
  wake_write_ = Socket();
  thread_.join();
}

void StoreServer::serve() {
  std::optional<std::chrono::steady_clock::time_point> end;
  // A run that fails at once may have ended before all ranks have joined; late ranks must hear of it, too.
  while (!end || ((come_ < size_ || !clients_.empty()) && std::chrono::steady_clock::now() < *end)) {
    std::vector<pollfd> waits{{listener_.descriptor(), POLLIN, 0}};
    if (!end) waits.push_back({wake_read_.descriptor(), POLLIN, 0});
    const size_t first = waits.size();
    for (const Client& client : clients_) waits.push_back({client.socket.descriptor(), POLLIN, 0});
    if (poll(waits.data(), waits.size(), end ? 10 : -1) < 0) continue;
    if (!end && waits[1].revents != 0)
      end = std::chrono::steady_clock::now() + (come_ < size_ ? kStoreFarewell : kLastFarewell);
    for (size_t i = first; i < waits.size(); ++i) {
      Client& client = clients_[i - first];
      if (waits[i].revents == 0) continue;
      try {
        if (!client.socket.receive(client.bytes)) {
          drop(client);
          continue;
        }
        const size_t most = client.rank < 0 ? kMostOfStranger : kMostBytes;
        while (auto frame = take_frame(client.bytes, most)) answer(client, *frame);
      } catch (const Error& error) {
        refuse(client, error.what());  // a stranger; the run goes on without it
      }
    }
    std::erase_if(clients_, [](const Client& client) { return client.socket.descriptor() < 0; });
    if (waits[0].revents != 0) {
      Socket socket(accept4(listener_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
      if (socket.descriptor() >= 0) clients_.push_back({.socket = std::move(socket)});
    }
  }
}

void StoreServer::answer(Client& client, const Frame& frame) {
  if (client.rank < 0 && frame.kind != kHello) fail_running("rendezvous", "an unknown client at the rendezvous");
  switch (frame.kind) {
    case kHello:
      return welcome(client, frame.content);
    case kSet: {
      auto [key, value] = parted(frame.content);
      for (Client& other : clients_)
        if (std::erase(other.wanted, key) > 0) other.socket.send(kValue, joined(key, value));
      values_[key] = std::move(value);
      return;
    }
    case kGet: {
      auto found = values_.find(frame.content);
      if (found == values_.end())
        client.wanted.push_back(frame.content);
      else
        client.socket.send(kValue, joined(found->first, found->second));
      return;
    }
    case kTell:
      return tell(client.rank, frame.content);
    case kPing: {
      std::string left;
      for (const Client& other : clients_)
        if (other.through) left += fmt::format("{}{}", left.empty() ? "" : ",", other.rank);
      client.socket.send(kPing, left);
      return;
    }
    case kBye:
      client.through = true;
      return say_bye_if_all_are_through();
    default:
      fail_running("rendezvous", "a frame of kind {} at the rendezvous", static_cast<int>(frame.kind));
  }
}

void StoreServer::welcome(Client& client, const std::string& content) {
  auto [rendezvous, greeting] = parted(content);
  if (rendezvous != kRendezvous) fail_running("rendezvous", "an unknown client at the rendezvous");
  auto [version, place] = parted(greeting);
  auto [rank_text, size_text] = parted(place);
  const int rank = std::atoi(rank_text.c_str());
  if (come_ == size_)
    return refuse(client, fmt::format("the run at this address has all its {} ranks; give this one a MASTER_PORT of "
                                      "its own",
                                      size_));
  if (version != tessera_version())
    return end_for_all(client, fmt::format("rank {} runs tessera {}, rank 0 {}; install the same everywhere", rank,
                                           version, tessera_version()));
  if (std::atoi(size_text.c_str()) != size_)
    return end_for_all(client,
                       fmt::format("rank {} says that the world has {} ranks, rank 0 says {}; give all processes "
                                   "the same WORLD_SIZE",
                                   rank, size_text, size_));
  const bool taken = std::any_of(clients_.begin(), clients_.end(), [&](const Client& c) { return c.rank == rank; });
  if (rank < 0 || rank >= size_ || taken)
    return end_for_all(client, fmt::format("{} rank {}; give each process a RANK of its own, from 0 to {}",
                                           taken ? "two processes say that they are" : "there is no", rank, size_ - 1));
  client.rank = rank;
  ++come_;
  client.socket.send(kHello, "");
  for (const std::string& notice : last_notices_) client.socket.send(kNotice, notice);
}

/// A rank cannot take part, and not all have joined yet: the run can never be complete, which is a mistake of the
/// user's.
void StoreServer::end_for_all(Client& client, const std::string& why) {
  refuse(client, why);
  tell(-1, end_notice(why, ErrorKind::user));
}

void StoreServer::refuse(Client& client, const std::string& why) {
  client.socket.send(kRefused, why);
  client.rank = -1;
  drop(client);
}

/// The connection has ended. If its owner was a rank that has not finished, it counts as dead.
void StoreServer::drop(Client& client) {
  const int rank = client.rank;
  const bool died = rank >= 0 && !client.through;
  client.rank = -1;
  client.socket = Socket();
  if (died)
    tell(rank, death_notice(fmt::format("rank {} has died: its process or its network ended without notice", rank)));
}

void StoreServer::tell(int from, const std::string& text) {
  const std::string notice = joined(std::to_string(from), text);
  if (is_end_notice(text) || !last_notices_.empty()) last_notices_.push_back(notice);
  for (Client& client : clients_)
    if (client.rank >= 0 && client.rank != from) client.socket.send(kNotice, notice);
}

void StoreServer::say_bye_if_all_are_through() {
  const auto through = std::count_if(clients_.begin(), clients_.end(), [](const Client& c) { return c.through; });
  if (through != size_) return;
  for (Client& client : clients_) client.socket.send(kBye, "");
}

}  // namespace tessera::comm
