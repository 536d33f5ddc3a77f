#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/comm/flight.h"
#include "tessera/comm/local/doorbell.h"
#include "tessera/comm/local/mailbox.h"
#include "tessera/comm/local/region.h"
#include "tessera/comm/operation.h"

/// The state that the ranks of a local world share. Objects in the region are at the same address for all, and need not
/// be destroyed.
namespace tessera::comm {

/// Collectives of one group that a member may have in flight at once; starting one more waits for its oldest.
constexpr uint64_t kWindow = 16;
/// Two windows: when a member starts number n, all have arrived at n - kWindow (it waited for that), and so have
/// finished n - 2 kWindow (they waited for that). So nobody still reads the slot that n reuses.
constexpr uint64_t kSlots = 2 * kWindow;
/// Inputs up to this size are published as a copy, so that their owner need not wait for the readers.
constexpr size_t kEagerBytes = 4096;

/// What one member publishes of one collective. That member writes it before it sets `arrived`; the others then read
/// it, and find the fields that they always need in one cache line.
struct alignas(64) Entry {
  std::atomic<uint64_t> arrived{0};  ///< collectives up to this number (the first is 1) are published
  uint64_t signature = 0;
  const void* in = nullptr;  ///< the operation's input, or its copy in `eager` or in the region
  void* out = nullptr;
  bool held = false;  ///< the member keeps its buffers until all have finished
  std::byte* eager = nullptr;
  const int64_t* counts = nullptr;  ///< of all_to_all: the counts sent to each member, then those received from each

  alignas(64) std::atomic<uint64_t> finished{0};  ///< collectives up to this number no longer read
  std::atomic<uint64_t> taken{0};                 ///< permutations up to this number have had their input read
  std::atomic<int64_t> claimed{0};                ///< claimed pieces of this member's share of a shared operation
  KeptOperation operation;
};

/// One collective in flight.
struct Slot {
  std::span<Entry> entries;
  alignas(64) std::atomic<int64_t> shared{0};  ///< pieces of a shared operation that are done; member 0 clears it
};

/// A group of ranks, in member order. It is in the region, with all its parts.
class Group {
 public:
  Group(Region& region, std::span<const int> members, uint64_t ordinal, Group* before);

  int size() const { return static_cast<int>(members_.size()); }
  int rank_of(int member) const { return members_[member]; }
  std::span<const int> members() const { return members_; }
  Slot& slot(uint64_t number) { return slots_[(number - 1) % kSlots]; }
  Mailbox& mailbox(int from, int to) { return mailboxes_[static_cast<size_t>(from) * members_.size() + to]; }
  std::string str() const;  ///< "{0,2,4}"

  uint64_t ordinal() const { return ordinal_; }  ///< of the groups with these members
  Group* before() const { return before_; }      ///< the group made before this one, with any members

 private:
  std::span<int> members_;
  uint64_t ordinal_;
  Group* before_;
  std::span<Slot> slots_;
  std::span<Mailbox> mailboxes_;  // [from, to]
};

/// What a long wait of one thread is for: the others' arrival at a collective of a group, their end of it, or a message
/// sent or taken. The thread that sets `group` owns the note; others read it while it may change.
struct WaitNote {
  std::atomic<Group*> group{nullptr};  ///< null: nobody owns the note
  std::atomic<uint64_t> number{0};
  std::atomic<int> peer{-1};       ///< of a message, member index; -1: a collective
  std::atomic<int64_t> looked{0};  ///< when the thread last polled, in nanoseconds of the steady clock; 0: no wait yet
};

/// One rank's state that all other ranks see.
struct alignas(64) Station {
  static constexpr size_t kNotes = 8;

  Doorbell bell;  ///< where its threads sleep
  /// Of its threads, as of queues of its device; of more than kNotes, some are not seen to wait.
  alignas(64) std::array<WaitNote, kNotes> waits;

  explicit Station(bool between_processes) : bell(between_processes) {}
};

/// State shared by all ranks, in the region.
struct Commons {
  Commons(Region& region, int size);

  std::span<Station> stations;          ///< by rank
  std::span<Flight> flights;            ///< by rank
  std::atomic<int> group_maker{-1};     ///< the rank that searches the groups, or adds one
  std::atomic<Group*> groups{nullptr};  ///< the newest

  enum class End : uint32_t { none, reasoning, ended };
  alignas(64) std::atomic<End> end{End::none};
  std::array<char, 4096> reason{};  ///< written once, before `ended`, as are the next two
  ErrorKind kind = ErrorKind::running;
  int failed = -1;
};

struct Pending;

/// One rank's operations under way, in its own process.
struct Desk {
  alignas(64) std::mutex mutex;
  std::vector<Pending*> pending;                ///< of all of the rank's communicators
  std::map<std::vector<int>, uint64_t> joined;  ///< how many groups of these members
};

/// One process' view of the world.
class Fabric {
 public:
  /// All ranks are threads of this process.
  Fabric(int size, const WorldOptions& options);
  /// Joins the state that the ranks of several processes share.
  Fabric(std::shared_ptr<Region> region, Commons& commons, const WorldOptions& options);

  int size() const { return static_cast<int>(commons_->stations.size()); }
  const WorldOptions& options() const { return options_; }
  const std::shared_ptr<Region>& region() const { return region_; }
  Station& station(int rank) { return commons_->stations[rank]; }
  Flight& flight(int rank) { return commons_->flights[rank]; }
  Desk& desk(int rank) { return desks_[rank]; }

  /// The group of `rank`'s next membership: its k-th request for a list of members matches the others' k-th.
  Group& group_of(int rank, std::span<const int> members);

  /// The ranks at fault for this wait of `rank`: follows who waits for whom to the ranks that wait for nobody, and says
  /// what those do. "rank 1 waits at …; rank 2 waits for nobody and is in MatMul 'h.3'".
  std::string blame(int rank, const WaitNote& wait);

  /// `rank`: -1 for a process that watches the ranks and is not one of them.
  void abort(int rank, std::string_view message, ErrorKind kind);
  bool has_ended() const { return commons_->end.load(std::memory_order_acquire) == Commons::End::ended; }
  /// How the run was aborted; nullopt if it was not.
  std::optional<End> end() const;
  /// Throws the abort's reason, if there is one.
  void check_alive() const {
    if (has_ended()) throw_reason();
  }

 private:
  class GroupMaker;
  [[noreturn]] void throw_reason() const;

  WorldOptions options_;
  std::shared_ptr<Region> region_;
  Commons* commons_;
  std::vector<Desk> desks_;  // by rank; those of other processes are not used
};

}  // namespace tessera::comm
