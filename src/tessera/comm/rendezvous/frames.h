#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/base/descriptor.h"

/// The rendezvous' connections carry frames: a length of 4 bytes (little-endian), a kind, and a content of at most
/// 16 MiB. Failures are running errors.
namespace tessera::comm {

struct Frame {
  char kind = 0;
  std::string content;
};

/// A hello begins with this text; a client that says anything else is not a rank.
constexpr std::string_view kRendezvous = "tessera rendezvous 2";

// From a rank to the store.
constexpr char kHello = 'H';  ///< rendezvous, version, rank and size, once, first; answered without content
constexpr char kSet = 'S';    ///< key and value
constexpr char kGet = 'G';    ///< key; answered when it is set
constexpr char kTell = 'T';   ///< a notice for all other ranks
constexpr char kBye = 'B';    ///< this rank has finished; answered when all have
constexpr char kPing = 'P';   ///< answered at once by a list of the ranks that have finished, "1,3"
// From the store to a rank.
constexpr char kValue = 'V';    ///< key and value
constexpr char kNotice = 'N';   ///< rank and notice
constexpr char kRefused = 'X';  ///< why

/// Two texts as one content, and back.
std::string joined(std::string_view first, std::string_view second);
std::pair<std::string, std::string> parted(std::string_view content);

/// Takes the first frame off `bytes`; nothing if it is not complete. Its content has `most` bytes at most.
constexpr size_t kMostBytes = 16 << 20;
std::optional<Frame> take_frame(std::string& bytes, size_t most = kMostBytes);

/// An open socket.
class Socket {
 public:
  explicit Socket(int descriptor = -1) : descriptor_(descriptor) {}

  int descriptor() const { return descriptor_.get(); }
  /// Sends the whole frame. False if the other end has closed the connection.
  bool send(char kind, std::string_view content) const;
  /// Whether something arrives, or the other end closes the connection, within `wait`.
  bool readable(std::chrono::milliseconds wait) const;
  /// Waits for data and appends it to `bytes`. False if the other end has closed the connection.
  bool receive(std::string& bytes) const;
  /// Ends both directions, so that a thread that waits in receive() returns.
  void shut() const;
  /// This end's address as a number, "10.0.0.1".
  std::string local_address() const;

 private:
  Descriptor descriptor_;
};

/// Listens at a host's address. Throws a user error with the fix if the port is taken or the address is not here.
Socket listen_at(const std::string& host, int port);
/// Connects, trying again until the timeout, since the listener may start later. Throws a running error.
Socket connect_to(const std::string& host, int port, std::chrono::milliseconds timeout);

}  // namespace tessera::comm
