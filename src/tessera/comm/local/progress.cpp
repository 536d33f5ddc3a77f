#include <algorithm>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/comm/local/communicator.h"

namespace tessera::comm {

using Stage = Pending::Stage;

namespace {

/// Whether the members share the work. Small operations are faster if each member works for itself.
bool is_shared(const Operation& operation) {
  return byte_count(operation, shared_elements(operation)) > kEagerBytes;
}

}  // namespace

/// Whether nobody still reads the slot of collective `number`; see kSlots.
bool LocalCommunicator::may_start(uint64_t number) {
  if (number <= kWindow) return true;
  return finished_[number % kWindow] == number - kWindow && all_have_come(number - kWindow);
}

bool LocalCommunicator::all_have_come(uint64_t number) {
  const auto& entries = group_.slot(number).entries;
  for (size_t j = 0; j < entries.size(); ++j) {
    if (come_[j] < number) come_[j] = std::max(come_[j], entries[j].arrived.load(std::memory_order_acquire));
    if (come_[j] < number) return false;
  }
  return true;
}

/// After this member has set its mark: wakes all if all have set theirs. So each sleeps once per step, even if many
/// arrive one by one. If two set theirs at once, the fence makes at least one of them see both.
void LocalCommunicator::ring_if_all(std::atomic<uint64_t> Entry::*mark, uint64_t number) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (const Entry& entry : group_.slot(number).entries)
    if ((entry.*mark).load(std::memory_order_relaxed) < number) return;
  wake_all();
}

void LocalCommunicator::ring_all() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  wake_all();
}

void LocalCommunicator::wake_all() {
  for (int member = 0; member < size(); ++member) fabric_->station(group_.rank_of(member)).bell.wake();
}

void LocalCommunicator::publish(Pending& pending, const Operation& operation) {
  Slot& slot = group_.slot(pending.number);
  Entry& entry = slot.entries[me_];
  entry.operation.assign(operation);
  pending.operation = &*entry.operation;
  entry.signature = signature(operation);
  entry.counts = entry.operation->counts.data();
  entry.in = operation.in;
  entry.out = operation.out;
  size_t bytes = in_bytes(operation, me_);
  bool permute = operation.kind == Kind::permute, shared = is_shared(operation);
  entry.held = bytes > kEagerBytes && !permute && !shared;
  pending.in.used = pending.out.used = false;
  if (bytes > 0 && bytes <= kEagerBytes && !permute) {
    copy_for_others(operation, me_, entry.eager);
    entry.in = entry.eager;
  } else if (bytes > 0 && !fabric_->region()->holds(operation.in)) {
    std::byte* staged = stage(pending.in, bytes);
    copy_for_others(operation, me_, staged);
    entry.in = staged;
  }
  const size_t wanted = shared ? out_bytes(operation, me_) : 0;
  if (wanted > 0 && !fabric_->region()->holds(operation.out)) entry.out = stage(pending.out, wanted);
  entry.claimed.store(0, std::memory_order_relaxed);
  if (me_ == 0) slot.shared.store(0, std::memory_order_relaxed);
  pending.received = pending.sent = false;
  pending.stage = permute ? Stage::exchange : Stage::arrival;
  entry.arrived.store(pending.number, std::memory_order_release);
  ring_if_all(&Entry::arrived, pending.number);
  if (permute && operation.to >= 0) ring(operation.to);
}

/// Room for a copy of a buffer that is outside the region, so that the others can see it.
std::byte* LocalCommunicator::stage(StandIn& staged, size_t bytes) {
  staged.used = true;
  if (staged.room < bytes) {
    staged.memory = fabric_->region()->allocate(rank_, bytes, "communication");
    staged.room = bytes;
  }
  return staged.memory.get();
}

/// Others have written this member's result to a staged buffer.
void LocalCommunicator::unstage(Pending& pending) {
  if (!pending.out.used) return;
  const Operation& operation = *pending.operation;
  std::memcpy(operation.out, pending.out.memory.get(), out_bytes(operation, me_));
}

Outbox& LocalCommunicator::outbox(int member) {
  auto& outbox = outboxes_[member];
  if (!outbox) outbox = std::make_unique<Outbox>(group_.mailbox(me_, member), fabric_->region(), rank_);
  return *outbox;
}

Inbox& LocalCommunicator::inbox(int member) {
  auto& inbox = inboxes_[member];
  if (!inbox) inbox = std::make_unique<Inbox>(group_.mailbox(member, me_));
  return *inbox;
}

void LocalCommunicator::post_message(Pending& pending) {
  const Operation& operation = *pending.operation;
  bool send = operation.kind == Kind::send;
  int peer = send ? operation.to : operation.from;
  if (peer < 0) {
    if (const size_t bytes = out_bytes(operation, me_); !send && bytes > 0) std::memset(operation.out, 0, bytes);
    pending.stage = Stage::done;
  } else if (send) {
    pending.number = outbox(peer).post(operation);
    pending.stage = Stage::sending;
    ring(peer);
  } else {
    pending.number = inbox(peer).claim();
    pending.stage = Stage::receiving;
  }
}

/// Takes all steps that need no other rank; true once the operation is done. Leaves a send alone until its own wait,
/// since the receiver may still arrive before that and save the copy.
bool LocalCommunicator::advance(Pending& pending, bool waited_for) {
  switch (pending.stage) {
    case Stage::arrival:
    case Stage::sharing:
    case Stage::release:
      return advance_collective(pending);
    case Stage::exchange:
      return advance_permute(pending);
    case Stage::receiving:
      return advance_receive(pending);
    case Stage::sending:
      if (!waited_for || !outbox(pending.operation->to).detach(pending.number)) return false;
      ring(pending.operation->to);  // which may have arrived meanwhile
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
  if (pending.stage == Stage::arrival) {
    if (!all_have_come(pending.number)) return false;
    check_agreement(pending);
    if (is_shared(operation)) {
      pending.stage = Stage::sharing;
      if (share_pieces(operation, me_, slot, pointers_)) ring_all();
    } else {
      pull(operation, me_, slot.entries, pointers_);
      bool awaited =
          std::any_of(slot.entries.begin(), slot.entries.end(), [](const Entry& entry) { return entry.held; });
      finish(pending);
      if (slot.entries[me_].held) pending.stage = Stage::release;
      if (awaited) ring_if_all(&Entry::finished, pending.number);
    }
  }
  if (pending.stage == Stage::sharing) {
    if (slot.shared.load(std::memory_order_acquire) < piece_count(operation, slot.entries.size())) return false;
    unstage(pending);
    finish(pending);
  }
  if (pending.stage == Stage::release) {
    for (const Entry& entry : slot.entries)
      if (entry.finished.load(std::memory_order_acquire) < pending.number) return false;
    pending.stage = Stage::done;
  }
  return pending.stage == Stage::done;
}

/// A permutation waits only for its two neighbours, so that a ring of them does not keep the whole group in step.
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
  return true;
}

bool LocalCommunicator::advance_receive(Pending& pending) {
  const Operation& operation = *pending.operation;
  const Operation* sent = inbox(operation.from).find(pending.number);
  if (sent == nullptr) return false;
  check_message(pending, *sent);
  if (!inbox(operation.from).take(pending.number, operation.out)) return false;
  ring(operation.from);  // which may wait for its buffer
  pending.stage = Stage::done;
  return true;
}

/// This member no longer reads.
void LocalCommunicator::finish(Pending& pending) {
  finished_[pending.number % kWindow] = pending.number;
  group_.slot(pending.number).entries[me_].finished.store(pending.number, std::memory_order_release);
  pending.stage = Stage::done;
}

}  // namespace tessera::comm
