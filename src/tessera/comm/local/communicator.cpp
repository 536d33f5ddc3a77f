#include "tessera/comm/local/communicator.h"

#include <algorithm>
#include <chrono>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "tessera/base/error.h"
#include "tessera/comm/yield.h"

namespace tessera::comm {
namespace {

using Clock = std::chrono::steady_clock;

/// Longest sleep without polling. A rank that completes a step rings; this bound only limits the delay of noticing
/// events for which nobody rings, such as a neighbour's disagreement about a permutation.
constexpr std::chrono::milliseconds kSlice{20};

/// Polls before a thread sleeps; together they take about as long as waking from a sleep. The first ones keep the core,
/// the later ones yield it, while it comes back soon.
constexpr int kSpins = 100;
constexpr int kYields = 50;

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

constexpr int kIndexBits = 24;  // of a ticket: index in the pool below, number of uses above

}  // namespace

LocalCommunicator::LocalCommunicator(std::shared_ptr<Fabric> fabric, int rank, std::span<const int> members)
    : fabric_(std::move(fabric)),
      rank_(rank),
      group_(fabric_->group_of(rank, members)),
      me_(static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin())),
      station_(fabric_->station(rank)),
      desk_(fabric_->desk(rank)),
      outboxes_(members.size()),
      inboxes_(members.size()),
      come_(members.size()),
      pointers_{std::vector<const void*>(members.size()), std::vector<void*>(members.size())} {}

LocalCommunicator::~LocalCommunicator() {
  std::lock_guard lock(desk_.mutex);
  std::erase_if(desk_.pending, [this](const Pending* pending) { return pending->owner == this; });
}

namespace {

/// Shows the others what a wait is for, once it lasts longer than a moment.
class LastingWait {
 public:
  LastingWait(Station& station, Group& group, const Awaited& awaited) : note_(take_note(station, group)) {
    note_.number.store(awaited.number, std::memory_order_relaxed);
    note_.peer.store(awaited.peer, std::memory_order_relaxed);
    has_looked();
  }
  ~LastingWait() {
    note_.looked.store(0, std::memory_order_release);
    note_.group.store(nullptr, std::memory_order_release);
  }
  LastingWait(const LastingWait&) = delete;
  LastingWait& operator=(const LastingWait&) = delete;

  void has_looked() { note_.looked.store(steady_nanoseconds(), std::memory_order_release); }
  const WaitNote& note() const { return note_; }

 private:
  // A free one of the station; else its own, which nobody else sees.
  WaitNote& take_note(Station& station, Group& group) {
    for (WaitNote& note : station.waits)
      if (Group* nobody = nullptr; note.group.compare_exchange_strong(nobody, &group)) return note;
    own_.group.store(&group, std::memory_order_relaxed);
    return own_;
  }

  WaitNote own_;
  WaitNote& note_;
};

}  // namespace

std::chrono::milliseconds LocalCommunicator::patience(bool joins) const {
  return joins ? fabric_->options().join_timeout : fabric_->options().timeout;
}

template <typename Ready, typename Late>
void LocalCommunicator::block_until(const Awaited& awaited, std::chrono::milliseconds most, Ready ready, Late late) {
  auto look = [&] {
    fabric_->check_alive();
    std::lock_guard lock(desk_.mutex);
    if (ready()) return true;
    for (Pending* other : desk_.pending) other->owner->advance(*other, false);
    return false;
  };
  const WorldOptions& options = fabric_->options();
  for (int looks = options.spin ? 0 : kSpins; looks < kSpins + kYields; ++looks) {
    if (look()) return;
    if (looks < kSpins)
      pause();
    else if (!yield_for_a_moment())
      break;
  }
  Clock::time_point now = Clock::now(), deadline = now + most;
  LastingWait lasting(station_, group_, awaited);
  // The look that may take long is not that of an announced sleeper, whom others would try to wake.
  while (!look() && !station_.bell.look_or_sleep(look, std::min<std::chrono::nanoseconds>(kSlice, deadline - now))) {
    now = Clock::now();
    lasting.has_looked();
    if (now < deadline) continue;
    if (look()) return;  // after sleeping through the deadline, all may have come
    std::string reason;
    {
      std::lock_guard lock(desk_.mutex);
      reason = late();
    }
    const std::string blame = fabric_->blame(rank_, lasting.note());
    raise(blame.empty() ? reason : reason + "; " + blame);
  }
}

Ticket LocalCommunicator::start(const Operation& operation) {
  fabric_->check_alive();
  validate(operation, me_, size());
  Pending& pending = take_pending();
  if (operation.kind == Kind::send || operation.kind == Kind::recv) {
    pending.message.assign(operation);
    pending.operation = &*pending.message;
    post_message(pending);
    std::lock_guard lock(desk_.mutex);
    desk_.pending.push_back(&pending);
  } else {
    pending.number = last_number_ + 1;
    auto start_now = [&] {
      if (!may_start(pending.number)) return false;
      publish(pending, operation);
      desk_.pending.push_back(&pending);
      return true;
    };
    block_until({pending.number - std::min(pending.number, kWindow), -1}, patience(false), start_now,
                [&] { return late_start(pending.number); });
    last_number_ = pending.number;
  }
  return (pending.uses << kIndexBits) | pending.index;
}

Pending& LocalCommunicator::take_pending() {
  if (free_.empty()) {
    free_.push_back(pool_.size());
    Pending& added = pool_.emplace_back();
    added.owner = this;
    added.index = pool_.size() - 1;
  }
  Pending& pending = pool_[free_.back()];
  free_.pop_back();
  ++pending.uses;
  return pending;
}

Pending& LocalCommunicator::pending_of(Ticket ticket) {
  size_t index = ticket & ((Ticket{1} << kIndexBits) - 1);
  bool known = index < pool_.size() && pool_[index].uses == ticket >> kIndexBits;
  check(known, "each ticket is waited for once, where it was started");
  return pool_[index];
}

void LocalCommunicator::wait(Ticket ticket) {
  Pending& pending = pending_of(ticket);
  auto end_now = [&] {
    if (!advance(pending, true)) return false;
    std::erase(desk_.pending, &pending);
    return true;
  };
  const Operation& operation = *pending.operation;
  Awaited awaited{pending.number};
  if (operation.kind == Kind::send) awaited = {pending.number + 1, operation.to};
  if (operation.kind == Kind::recv) awaited = {pending.number + 1, operation.from};
  block_until(awaited, patience(operation.joins), end_now, [&] { return late_operation(pending); });
  pending.stage = Pending::Stage::idle;
  ++pending.uses;
  free_.push_back(pending.index);
}

}  // namespace tessera::comm
