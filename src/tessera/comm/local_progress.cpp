#include <cstring>

#include "tessera/base/error.h"
#include "tessera/comm/local_communicator.h"
#include "tessera/comm/local_transfer.h"

namespace tessera::comm {

using Stage = Pending::Stage;

/// What a slot's counts reach when all members have counted themselves in collective `number`.
uint64_t LocalCommunicator::complete_count(uint64_t number) const {
  return ((number - 1) / kSlots + 1) * static_cast<uint64_t>(size());
}

bool LocalCommunicator::slot_is_free(uint64_t number) {
  uint64_t used_before = complete_count(number) - static_cast<uint64_t>(size());
  return group_.slot(number).finished.load(std::memory_order_acquire) >= used_before;
}

/// The member that completes a count wakes all: each sleeps once per step, however many come one by one.
void LocalCommunicator::count_up(std::atomic<uint64_t>& counter, uint64_t complete) {
  if (counter.fetch_add(1, std::memory_order_acq_rel) + 1 != complete) return;
  for (int member = 0; member < size(); ++member) ring(member);
}

void LocalCommunicator::publish(Pending& pending) {
  const Operation& operation = *pending.operation;
  Slot& slot = group_.slot(pending.number);
  Entry& entry = slot.entries[me_];
  entry.operation.assign(operation);
  entry.signature = signature(operation);
  entry.in = operation.in;
  size_t bytes = in_bytes(operation, me_);
  bool permute = operation.kind == Kind::permute;
  pending.eager = bytes <= kEagerBytes && !permute;
  if (pending.eager && bytes > 0) {
    std::memcpy(entry.eager.get(), operation.in, bytes);
    entry.in = entry.eager.get();
  }
  pending.received = pending.sent = false;
  pending.stage = permute ? Stage::exchange : Stage::arrival;
  entry.arrived.store(pending.number, std::memory_order_release);
  count_up(slot.arrived, complete_count(pending.number));
  if (permute && operation.to >= 0) ring(operation.to);
}

void LocalCommunicator::post_message(Pending& pending) {
  const Operation& operation = *pending.operation;
  bool send = operation.kind == Kind::send;
  int peer = send ? operation.to : operation.from;
  if (peer < 0) {
    if (!send) std::memset(operation.out, 0, out_bytes(operation, me_));
    pending.stage = Stage::done;
  } else if (send) {
    pending.number = group_.mailbox(me_, peer).post(operation);
    pending.stage = Stage::sending;
    ring(peer);
  } else {
    pending.number = group_.mailbox(peer, me_).claim();
    pending.stage = Stage::receiving;
  }
}

/// Takes all steps that need no other rank; true once the operation is done. A send is left alone until its own wait:
/// until then the receiver may still come and save the copy.
bool LocalCommunicator::advance(Pending& pending, bool waited_for) {
  switch (pending.stage) {
    case Stage::arrival:
    case Stage::reduction:
    case Stage::release:
      return advance_collective(pending);
    case Stage::exchange:
      return advance_permute(pending);
    case Stage::receiving:
      return advance_receive(pending);
    case Stage::sending:
      if (!waited_for) return false;
      group_.mailbox(me_, pending.operation->to).detach(pending.number);
      pending.stage = Stage::done;
      return true;
    case Stage::done:
      return true;
    case Stage::idle:
      break;
  }
  check(false, "only started operations advance");
  return false;
}

bool LocalCommunicator::advance_collective(Pending& pending) {
  const Operation& operation = *pending.operation;
  Slot& slot = group_.slot(pending.number);
  uint64_t complete = complete_count(pending.number);
  if (pending.stage == Stage::arrival) {
    if (slot.arrived.load(std::memory_order_acquire) < complete) return false;
    check_agreement(pending);
    if (operation.kind == Kind::all_reduce && !pending.eager) {
      pending.all_reduced = all_reduced_[pending.number % kSlots] += static_cast<uint64_t>(size());
      pending.stage = Stage::reduction;
      reduce_chunk(operation, me_, slot.entries, inputs_);
      count_up(slot.reduced, pending.all_reduced);
    } else {
      pull(operation, me_, slot.entries, inputs_);
      finish(pending);
    }
  }
  if (pending.stage == Stage::reduction) {
    if (slot.reduced.load(std::memory_order_acquire) < pending.all_reduced) return false;
    copy_chunks(operation, me_, slot.entries);
    finish(pending);
  }
  if (pending.stage == Stage::release && slot.finished.load(std::memory_order_acquire) >= complete)
    pending.stage = Stage::done;
  return pending.stage == Stage::done;
}

/// A permutation waits for its two neighbours only, so that a ring of them does not keep the whole group in step.
bool LocalCommunicator::advance_permute(Pending& pending) {
  const Operation& operation = *pending.operation;
  auto& entries = group_.slot(pending.number).entries;
  auto has_come = [&](int member) { return entries[member].arrived.load(std::memory_order_acquire) == pending.number; };
  size_t bytes = out_bytes(operation, me_);
  if (!pending.received && operation.from < 0) {
    if (bytes > 0) std::memset(operation.out, 0, bytes);
    pending.received = true;
  } else if (!pending.received && has_come(operation.from)) {
    check_pair(pending, operation.from, me_);
    if (bytes > 0) std::memcpy(operation.out, entries[operation.from].in, bytes);
    entries[operation.from].taken.store(pending.number, std::memory_order_release);
    ring(operation.from);
    pending.received = true;
  }
  if (!pending.sent) {
    pending.sent = operation.to < 0 || entries[me_].taken.load(std::memory_order_acquire) == pending.number;
    if (!pending.sent && has_come(operation.to)) check_pair(pending, me_, operation.to);
  }
  if (!pending.received || !pending.sent) return false;
  finish(pending);
  pending.stage = Stage::done;
  return true;
}

bool LocalCommunicator::advance_receive(Pending& pending) {
  const Operation& operation = *pending.operation;
  Mailbox& mailbox = group_.mailbox(operation.from, me_);
  const Operation* sent = mailbox.find(pending.number);
  if (sent == nullptr) return false;
  check_message(pending, *sent);
  mailbox.take(pending.number, operation.out);
  pending.stage = Stage::done;
  return true;
}

/// This member reads nothing any more; from here on the slot may be used again as soon as all say so.
void LocalCommunicator::finish(Pending& pending) {
  Slot& slot = group_.slot(pending.number);
  pending.stage = pending.eager ? Stage::done : Stage::release;
  slot.entries[me_].finished.store(pending.number, std::memory_order_release);
  count_up(slot.finished, complete_count(pending.number));
}

}  // namespace tessera::comm
