#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "tessera/comm/local/region.h"
#include "tessera/comm/operation.h"

/// Messages from one member to another, in order: the k-th recv takes the k-th send.
///
/// A message is posted with the sender's own buffer. If the receiver arrives before the sender waits, it reads that
/// buffer; else the sender's wait copies the bytes into the message's own buffer, and so never waits for the receiver.
/// The side that touches the bytes first notes this in the message's state. There are no locks, so a rank that dies in
/// the middle leaves nobody waiting for one.
///
///     posted ─▶ reading ─▶ taken         the receiver was first
///     posted ─▶ copying ─▶ copied ─▶ reading ─▶ taken
namespace tessera::comm {

struct Message {
  enum class State : uint32_t { posted, copying, copied, reading, taken };

  KeptOperation operation;  ///< as the sender stated it
  size_t bytes = 0;
  const void* data = nullptr;  ///< the sender's buffer, or the copy
  std::atomic<State> state{State::posted};
  std::atomic<Message*> next{nullptr};
};

/// The state that both sides see; in the region.
struct Mailbox {
  std::atomic<Message*> first{nullptr};
  std::atomic<uint64_t> seen{0};  ///< messages that the receiver has come upon
};

/// The sender's side. It reuses messages and their copies once the receiver is done with them.
class Outbox {
 public:
  Outbox(Mailbox& mailbox, std::shared_ptr<Region> region, int rank)
      : mailbox_(mailbox), region_(std::move(region)), rank_(rank) {}
  ~Outbox();
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  /// Posts the next message and returns its number. Copies small messages, and those whose buffer the receiver cannot
  /// see, at once.
  uint64_t post(const Operation& send);
  /// Frees the sender's buffer. True once the bytes are copied or taken, false while the receiver reads them.
  bool detach(uint64_t number);

 private:
  struct Cell {
    Message* message = nullptr;
    std::shared_ptr<std::byte[]> copy;
    size_t room = 0;        // bytes of the copy
    bool detached = false;  // the sender is done with it
  };
  void keep_copy(Cell& cell);
  void retire();

  Mailbox& mailbox_;
  std::shared_ptr<Region> region_;
  int rank_;
  std::deque<Cell> out_;  // messages oldest_, oldest_ + 1, …
  std::vector<Cell> free_;
  uint64_t oldest_ = 0;
  Message* last_ = nullptr;
};

/// The receiver's side.
class Inbox {
 public:
  explicit Inbox(Mailbox& mailbox) : mailbox_(mailbox) {}

  /// The number of the next message.
  uint64_t claim() { return claimed_++; }
  /// The sender's operation; null if it is not posted yet. The message must not be taken yet.
  const Operation* find(uint64_t number);
  /// Moves a posted message's bytes to `out`; false while the sender copies them.
  bool take(uint64_t number, void* out);

 private:
  Mailbox& mailbox_;
  std::deque<Message*> come_;  // messages oldest_, oldest_ + 1, …; null once taken
  uint64_t oldest_ = 0;
  uint64_t claimed_ = 0;
  Message* last_ = nullptr;
};

}  // namespace tessera::comm
