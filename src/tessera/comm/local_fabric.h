#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/comm/doorbell.h"
#include "tessera/comm/mailbox.h"
#include "tessera/comm/operation.h"

/// What the ranks of a local world share. Nothing here blocks; local_communicator.h waits.
namespace tessera::comm {

/// Collectives of one group that a member may have in flight at once; starting one more waits for its oldest.
constexpr uint64_t kWindow = 16;
/// Two windows: when a member starts number n, all have come to n - kWindow (it waited for that), and so have finished
/// n - 2 kWindow (they waited for that). What n finds in its slot, nobody reads any more.
constexpr uint64_t kSlots = 2 * kWindow;
/// Inputs up to this size are published as a copy, so that their owner need not wait for the readers.
constexpr size_t kEagerBytes = 4096;

/// What one member publishes of one collective. Written by that member before `arrived` says so, read by the others,
/// who find what they always need in one cache line.
struct alignas(64) Entry {
  std::atomic<uint64_t> arrived{0};  ///< collectives up to this number (the first is 1) are published
  uint64_t signature = 0;
  const void* in = nullptr;  ///< the operation's input, or its copy in `eager`
  void* out = nullptr;
  bool held = false;  ///< the member keeps its buffers until all have finished
  std::unique_ptr<std::byte[]> eager;

  alignas(64) std::atomic<uint64_t> finished{0};  ///< collectives up to this number read nothing any more
  std::atomic<uint64_t> taken{0};                 ///< permutations up to this number have had their input read
  std::atomic<int64_t> claimed{0};                ///< pieces of this member's share of a shared operation dealt out
  OwnedOperation operation;
};

/// One collective in flight.
struct Slot {
  std::vector<Entry> entries;
  alignas(64) std::atomic<int64_t> shared{0};  ///< pieces of a shared operation that are done; member 0 clears it
};

/// A group of ranks, in member order.
class Group {
 public:
  explicit Group(std::vector<int> members);

  int size() const { return static_cast<int>(members_.size()); }
  int rank_of(int member) const { return members_[member]; }
  const std::vector<int>& members() const { return members_; }
  Slot& slot(uint64_t number) { return slots_[(number - 1) % kSlots]; }
  Mailbox& mailbox(int from, int to) { return mailboxes_[static_cast<size_t>(from) * members_.size() + to]; }
  std::string str() const;  ///< "{0,2,4}"

 private:
  std::vector<int> members_;
  std::array<Slot, kSlots> slots_;
  std::vector<Mailbox> mailboxes_;  // [from, to]
};

struct Pending;

/// One rank's place in the world: its operations under way, and where its threads sleep.
struct Station {
  alignas(64) Doorbell bell;  // read by the others
  alignas(64) std::mutex mutex;
  std::vector<Pending*> pending;  ///< of all of the rank's communicators
};

class Fabric {
 public:
  Fabric(int size, const WorldOptions& options);

  int size() const { return static_cast<int>(stations_.size()); }
  const WorldOptions& options() const { return options_; }
  Station& station(int rank) { return stations_[rank]; }

  /// The group that this is `rank`'s next membership of: its k-th request for a list of members is the others' k-th.
  Group& group_of(int rank, std::span<const int> members);

  void abort(int rank, std::string_view message);
  /// Throws the abort's reason, if there is one.
  void check_alive() const {
    if (aborted_.load(std::memory_order_acquire)) throw_reason();
  }

 private:
  struct Groups {
    std::vector<std::unique_ptr<Group>> groups;
    std::vector<size_t> joined;  // by member: how many of `groups` it has joined
  };

  [[noreturn]] void throw_reason() const;

  WorldOptions options_;
  std::vector<Station> stations_;
  std::mutex mutex_;
  std::map<std::vector<int>, Groups> groups_;
  std::string reason_;  // written once, before aborted_
  std::atomic<bool> aborted_{false};
};

}  // namespace tessera::comm
