#include "tessera/comm/local/fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/comm/group.h"

namespace tessera::comm {
namespace {

using Clock = std::chrono::steady_clock;

/// What whoever writes a reason needs at most, unless it dies.
constexpr std::chrono::milliseconds kReasoning{200};
constexpr std::chrono::microseconds kNap{50};

}  // namespace

Group::Group(Region& region, std::span<const int> members, uint64_t ordinal, Group* before)
    : members_(region.make<int>(members.size())),
      ordinal_(ordinal),
      before_(before),
      slots_(region.make<Slot>(kSlots)),
      mailboxes_(region.make<Mailbox>(members.size() * members.size())) {
  std::copy(members.begin(), members.end(), members_.begin());
  for (Slot& slot : slots_) {
    slot.entries = region.make<Entry>(members.size());
    const size_t counts = 2 * members.size();
    std::span<int64_t> room = region.make<int64_t>(counts * members.size());
    std::byte* eager = region.take(kEagerBytes * members.size());
    for (size_t j = 0; j < members.size(); ++j) {
      slot.entries[j].operation.set_room(room.subspan(j * counts, counts));
      slot.entries[j].eager = eager + j * kEagerBytes;
    }
  }
}

std::string Group::str() const {
  return group_text(members_);
}

Commons::Commons(Region& region, int size)
    : stations(region.make<Station>(static_cast<size_t>(size), region.is_between_processes())),
      flights(region.make<Flight>(static_cast<size_t>(size))) {}

Fabric::Fabric(int size, const WorldOptions& options) : options_(options), region_(make_private_region()) {
  if (size < 1) fail("comm", "a world of {} ranks; it needs at least one", size);
  commons_ = &region_->make<Commons>(1, *region_, size)[0];
  desks_ = std::vector<Desk>(size);
}

Fabric::Fabric(std::shared_ptr<Region> region, Commons& commons, const WorldOptions& options)
    : options_(options), region_(std::move(region)), commons_(&commons), desks_(commons.stations.size()) {}

/// Holds the list of groups; for as long as making one takes. A rank that dies meanwhile keeps the others for the
/// timeout at most, or until somebody ends the run.
class Fabric::GroupMaker {
 public:
  GroupMaker(Fabric& fabric, int rank) : maker_(fabric.commons_->group_maker) {
    const Clock::time_point deadline = Clock::now() + fabric.options_.timeout;
    for (int nobody = -1; !maker_.compare_exchange_weak(nobody, rank, std::memory_order_acquire); nobody = -1) {
      fabric.check_alive();
      if (nobody >= 0 && Clock::now() > deadline)
        fail_running("comm", "rank {} gave up after {} ms: rank {} has not finished making a group", rank,
                     fabric.options_.timeout.count(), nobody);
      std::this_thread::sleep_for(kNap);
    }
  }
  ~GroupMaker() { maker_.store(-1, std::memory_order_release); }
  GroupMaker(const GroupMaker&) = delete;
  GroupMaker& operator=(const GroupMaker&) = delete;

 private:
  std::atomic<int>& maker_;
};

Group& Fabric::group_of(int rank, std::span<const int> members) {
  member_of(rank, members, size());
  const std::vector<int> key(members.begin(), members.end());
  uint64_t ordinal = 0;
  {
    std::lock_guard lock(desk(rank).mutex);
    ordinal = desk(rank).joined[key]++;
  }
  GroupMaker maker(*this, rank);
  Group* newest = commons_->groups.load(std::memory_order_relaxed);
  for (Group* group = newest; group != nullptr; group = group->before())
    if (group->ordinal() == ordinal && std::ranges::equal(group->members(), key)) return *group;
  Group* made = &region_->make<Group>(1, *region_, members, ordinal, newest)[0];
  commons_->groups.store(made, std::memory_order_relaxed);
  return *made;
}

void Fabric::abort(int rank, std::string_view message, ErrorKind kind) {
  Commons::End state = Commons::End::none;
  if (!commons_->end.compare_exchange_strong(state, Commons::End::reasoning)) {
    // Somebody else ends the run; if that one dies in the middle, this reason serves.
    const Clock::time_point deadline = Clock::now() + kReasoning;
    while (commons_->end.load() == Commons::End::reasoning && Clock::now() < deadline)
      std::this_thread::sleep_for(kNap);
    if (commons_->end.load() == Commons::End::ended) return;
  }
  const std::string reason = rank < 0 ? std::string(message) : fmt::format("rank {} ended the run: {}", rank, message);
  const size_t length = std::min(reason.size(), commons_->reason.size() - 1);
  std::copy_n(reason.begin(), length, commons_->reason.begin());
  commons_->kind = kind;
  commons_->failed = rank;
  commons_->end.store(Commons::End::ended, std::memory_order_release);
  for (Station& station : commons_->stations) station.bell.ring();
}

std::optional<End> Fabric::end() const {
  if (!has_ended()) return std::nullopt;
  return End{commons_->reason.data(), commons_->kind, commons_->failed};
}

void Fabric::throw_reason() const {
  throw Error(commons_->kind, "comm", commons_->reason.data());
}

}  // namespace tessera::comm
