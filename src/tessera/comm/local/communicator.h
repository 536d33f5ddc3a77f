#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/comm/local/fabric.h"
#include "tessera/comm/local/transfer.h"

namespace tessera::comm {

class LocalCommunicator;

/// A buffer in the region, visible to the others, that stands in for one elsewhere.
struct StandIn {
  std::shared_ptr<std::byte[]> memory;
  size_t room = 0;    ///< bytes
  bool used = false;  ///< by this operation
};

/// An operation that one member has started and not yet waited for.
struct Pending {
  /// The event that it waits for next. This member's own threads take every step, in advance().
  enum class Stage : uint8_t {
    idle,       ///< not in use
    arrival,    ///< all members' inputs
    sharing,    ///< all pieces of a shared operation
    release,    ///< all readers of this member's buffers
    exchange,   ///< permute: the sender's input, and the receiver's release of ours
    sending,    ///< our own wait, which frees the buffer
    receiving,  ///< the sender's message
    done,
  };

  LocalCommunicator* owner = nullptr;
  Stage stage = Stage::idle;
  const Operation* operation = nullptr;  ///< kept in the collective's slot, or else here
  KeptOperation message;
  uint64_t number = 0;    ///< of the collective in its group (from 1), or of the message in its mailbox
  size_t index = 0;       ///< in its owner's pool
  uint64_t uses = 0;      ///< of this object, two per ticket: when the ticket was given and when it was waited for
  StandIn in, out;        ///< copies of buffers that the others cannot see
  bool received = false;  ///< permute: `out` is written
  bool sent = false;      ///< permute: `in` is read
};

/// What a wait is for: the others' arrival at a collective, or their end of it; or a message from or to one member.
struct Awaited {
  uint64_t number = 0;
  int peer = -1;  ///< of a message, member index; -1: a collective
};

/// One rank's membership of a group of a local world.
///
/// A collective takes the group's next slot. start() publishes this member's entry there. Once all have arrived, each
/// member's wait pulls its data from the others' buffers, counts itself finished, and returns when all have finished.
/// Before a wait sleeps, it takes every possible step of the rank's other operations, on all its communicators, so that
/// the order of waits cannot stop the others.
class LocalCommunicator : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<Fabric> fabric, int rank, std::span<const int> members);
  ~LocalCommunicator() override;

  int member() const override { return me_; }
  int size() const override { return group_.size(); }
  Ticket start(const Operation& operation) override;
  void wait(Ticket ticket) override;
  bool reduces_by_element(const Operation&) const override { return true; }

 private:
  // local_communicator.cpp: tickets and sleeping
  Pending& take_pending();
  Pending& pending_of(Ticket ticket);
  std::chrono::milliseconds patience(bool joins) const;
  template <typename Ready, typename Late>
  void block_until(const Awaited& awaited, std::chrono::milliseconds most, Ready ready, Late late);

  // local_progress.cpp: what an operation does next
  void publish(Pending& pending, const Operation& operation);
  void post_message(Pending& pending);
  bool advance(Pending& pending, bool waited_for);
  bool advance_collective(Pending& pending);
  bool advance_permute(Pending& pending);
  bool advance_receive(Pending& pending);
  std::byte* stage(StandIn& staged, size_t bytes);
  void unstage(Pending& pending);
  void finish(Pending& pending);
  bool may_start(uint64_t number);
  bool all_have_come(uint64_t number);
  void ring_if_all(std::atomic<uint64_t> Entry::*mark, uint64_t number);
  void ring_all();
  void wake_all();
  void ring(int member) { fabric_->station(group_.rank_of(member)).bell.ring(); }
  Outbox& outbox(int member);
  Inbox& inbox(int member);

  // local_faults.cpp: disagreements and timeouts
  void check_agreement(const Pending& pending);
  void check_pair(const Pending& pending, int sender, int receiver);
  void check_message(const Pending& pending, const Operation& sent);
  [[noreturn]] void raise(const std::string& message);
  std::string late_operation(const Pending& pending);
  std::string late_start(uint64_t number);

  std::shared_ptr<Fabric> fabric_;
  int rank_;
  Group& group_;
  int me_;
  Station& station_;
  Desk& desk_;
  std::vector<std::unique_ptr<Outbox>> outboxes_;  // by member; null if nothing was ever sent there
  std::vector<std::unique_ptr<Inbox>> inboxes_;    // likewise
  uint64_t last_number_ = 0;                       // of collectives started
  std::vector<uint64_t> come_;                // by member: the last collective at which it is known to have arrived
  std::array<uint64_t, kWindow> finished_{};  // by number modulo the window: the last that this member has finished
  std::deque<Pending> pool_;                  // grows only; a ticket names its object
  std::vector<size_t> free_;
  Pointers pointers_;
};

}  // namespace tessera::comm
