#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "tessera/comm/operation.h"
#include "tessera/comm/region.h"

/// Messages from one member to another, in order: the k-th recv takes the k-th send.
///
/// A message is posted with the sender's own buffer. If the receiver comes before the sender waits, it reads that
/// buffer; else the sender's wait moves the bytes into the message's own copy, and so never waits for the receiver to
/// come. Whoever touches the bytes first says so in the message's state; there are no locks, so that a rank that dies
/// in the middle leaves nobody waiting for one.
///
///     posted ─▶ reading ─▶ taken         the receiver came first
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

/// What both sides see; in the region.
struct Mailbox {
  std::atomic<Message*> first{nullptr};
  std::atomic<uint64_t> seen{0};  ///< messages that the receiver has come upon
};

/// The sender's side. Messages and their copies are used again once the receiver is done with them.
class Outbox {
 public:
  Outbox(Mailbox& mailbox, std::shared_ptr<Region> region, int rank)
      : mailbox_(mailbox), region_(std::move(region)), rank_(rank) {}
  ~Outbox();
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  /// The next message; returns its number. Small ones, and those whose buffer the receiver cannot see, are copied at
  /// once.
  uint64_t post(const Operation& send);
  /// Frees the sender's buffer: once it is true, the bytes are copied or taken. False while the receiver reads them.
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
  /// What the sender stated; null if it is not posted yet. Not of a message that is taken.
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
