#include "tessera/comm/local_communicator.h"

#include <algorithm>
#include <chrono>

#include "tessera/base/error.h"

namespace tessera::comm {
namespace {

using Clock = std::chrono::steady_clock;

/// Longest sleep without a look around. Whoever completes something rings; this only bounds the delay in noticing what
/// nobody rings for, such as a neighbour's disagreement about a permutation.
constexpr std::chrono::milliseconds kSlice{20};

constexpr int kIndexBits = 24;  // of a ticket: index in the pool below, number of uses above

}  // namespace

LocalCommunicator::LocalCommunicator(std::shared_ptr<Fabric> fabric, int rank, std::span<const int> members)
    : fabric_(std::move(fabric)),
      rank_(rank),
      group_(fabric_->group_of(rank, members)),
      me_(static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin())),
      station_(fabric_->station(rank)),
      inputs_(members.size()) {}

LocalCommunicator::~LocalCommunicator() {
  std::lock_guard lock(station_.mutex);
  std::erase_if(station_.pending, [this](const Pending* pending) { return pending->owner == this; });
}

template <typename Ready, typename Late>
void LocalCommunicator::block_until(Ready ready, Late late) {
  const WorldOptions& options = fabric_->options();
  Clock::time_point deadline{};
  while (true) {
    uint32_t heard = station_.bell.rings();
    fabric_->check_alive();
    {
      std::lock_guard lock(station_.mutex);
      if (ready()) return;
      for (Pending* other : station_.pending) other->owner->advance(*other, false);
    }
    Clock::time_point now = Clock::now();
    if (deadline == Clock::time_point{}) deadline = now + options.timeout;
    if (now >= deadline) raise(late());
    station_.bell.sleep(heard, std::min<std::chrono::nanoseconds>(kSlice, deadline - now), options.spin);
  }
}

Ticket LocalCommunicator::start(const Operation& operation) {
  fabric_->check_alive();
  validate(operation, me_, size());
  Pending& pending = take_pending();
  pending.operation.assign(operation);
  if (operation.kind == Kind::send || operation.kind == Kind::recv) {
    post_message(pending);
  } else {
    uint64_t number = last_number_ + 1;
    if (!slot_is_free(number)) block_until([&] { return slot_is_free(number); }, [&] { return late_slot(number); });
    last_number_ = number;
    pending.number = number;
    publish(pending);
  }
  std::lock_guard lock(station_.mutex);
  station_.pending.push_back(&pending);
  return (pending.uses << kIndexBits) | pending.index;
}

Pending& LocalCommunicator::take_pending() {
  if (free_.empty()) {
    free_.push_back(pool_.size());
    Pending& added = pool_.emplace_back();
    added.owner = this;
    added.index = pool_.size() - 1;
    added.operation.reserve(size());
  }
  Pending& pending = pool_[free_.back()];
  free_.pop_back();
  ++pending.uses;
  return pending;
}

Pending& LocalCommunicator::pending_of(Ticket ticket) {
  size_t index = ticket & ((Ticket{1} << kIndexBits) - 1);
  bool known = index < pool_.size() && pool_[index].uses == ticket >> kIndexBits;
  check(known && pool_[index].stage != Pending::Stage::idle, "each ticket is waited for once, where it was started");
  return pool_[index];
}

void LocalCommunicator::wait(Ticket ticket) {
  Pending& pending = pending_of(ticket);
  block_until([&] { return advance(pending, true); }, [&] { return late_operation(pending); });
  {
    std::lock_guard lock(station_.mutex);
    std::erase(station_.pending, &pending);
  }
  pending.stage = Pending::Stage::idle;
  free_.push_back(pending.index);
}

}  // namespace tessera::comm
