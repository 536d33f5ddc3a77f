#include "tessera/comm/rendezvous/frames.h"

#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "tessera/base/error.h"

namespace tessera::comm {
namespace {

constexpr std::chrono::milliseconds kRetry{50};

std::string number_bytes(size_t value) {
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}

size_t number_of(std::string_view bytes) {
  size_t value = 0;
  for (int i = 0; i < 4; ++i) value |= static_cast<size_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return value;
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses addresses_of(const std::string& host, int port) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found);
  if (error != 0) fail("rendezvous", "MASTER_ADDR={}: {}; give a host name or an address", host, gai_strerror(error));
  return {found, freeaddrinfo};
}

}  // namespace

std::string joined(std::string_view first, std::string_view second) {
  return number_bytes(first.size()).append(first).append(second);
}

std::pair<std::string, std::string> parted(std::string_view content) {
  if (content.size() < 4 || number_of(content) > content.size() - 4) fail_running("rendezvous", "a damaged frame");
  const size_t length = number_of(content);
  return {std::string(content.substr(4, length)), std::string(content.substr(4 + length))};
}

std::optional<Frame> take_frame(std::string& bytes, size_t most) {
  if (bytes.size() < 5) return std::nullopt;
  const size_t length = number_of(bytes);
  if (length > most)
    fail_running("rendezvous", "a frame of {} bytes, from a client that is not a rank of this run", length);
  if (bytes.size() < 5 + length) return std::nullopt;
  Frame frame{bytes[4], bytes.substr(5, length)};
  bytes.erase(0, 5 + length);
  return frame;
}

bool Socket::send(char kind, std::string_view content) const {
  const std::string bytes = number_bytes(content.size()).append(1, kind).append(content);
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t now = ::send(descriptor(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) return false;
    sent += static_cast<size_t>(now);
  }
  return true;
}

bool Socket::readable(std::chrono::milliseconds wait) const {
  pollfd entry{descriptor(), POLLIN, 0};
  return poll(&entry, 1, static_cast<int>(wait.count())) > 0;
}

bool Socket::receive(std::string& bytes) const {
  std::array<char, 4096> block;
  ssize_t come = 0;
  do come = recv(descriptor(), block.data(), block.size(), 0);
  while (come < 0 && errno == EINTR);
  if (come <= 0) return false;
  bytes.append(block.data(), static_cast<size_t>(come));
  return true;
}

void Socket::shut() const {
  shutdown(descriptor(), SHUT_RDWR);
}

std::string Socket::local_address() const {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  std::array<char, NI_MAXHOST> text{};
  if (getsockname(descriptor(), reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&address), length, text.data(), text.size(), nullptr, 0,
                  NI_NUMERICHOST) != 0)
    fail_running("rendezvous", "this end of the rendezvous has no address");
  return text.data();
}

Socket listen_at(const std::string& host, int port) {
  const Addresses addresses = addresses_of(host, port);
  Socket socket(::socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(socket.descriptor(), addresses->ai_addr, addresses->ai_addrlen) != 0 ||
      listen(socket.descriptor(), SOMAXCONN) != 0)
    fail("rendezvous",
         "rank 0 cannot serve the rendezvous at {}:{}: {}; MASTER_ADDR must be an address of rank 0's machine, and "
         "MASTER_PORT free",
         host, port, std::strerror(errno));
  return socket;
}

Socket connect_to(const std::string& host, int port, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const Addresses addresses = addresses_of(host, port);
  while (true) {
    Socket socket(::socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(socket.descriptor(), addresses->ai_addr, addresses->ai_addrlen) == 0) {
      const int on = 1;
      setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      return socket;
    }
    const int error = errno;
    if (std::chrono::steady_clock::now() >= deadline)
      fail_running("rendezvous", "rank 0 does not serve the rendezvous at {}:{} after {} ms: {}", host, port,
                   timeout.count(), std::strerror(error));
    std::this_thread::sleep_for(kRetry);
  }
}

}  // namespace tessera::comm
