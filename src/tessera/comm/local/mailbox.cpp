#include "tessera/comm/local/mailbox.h"

#include <cstring>

#include "tessera/base/error.h"

namespace tessera::comm {
namespace {

constexpr size_t kCopiedAtOnce = 4096;  // bytes

}  // namespace

/// A message that the receiver may still read lives on, to the end of the world.
Outbox::~Outbox() {
  for (Cell& cell : out_)
    if (cell.copy) region_->keep(std::move(cell.copy));
}

uint64_t Outbox::post(const Operation& send) {
  retire();
  Cell cell;
  if (free_.empty()) {
    cell.message = &region_->make<Message>(1)[0];
  } else {
    cell = std::move(free_.back());
    free_.pop_back();
  }
  Message& message = *cell.message;
  message.operation.assign(send);
  message.bytes = byte_count(send, send.count);
  message.data = send.in;
  message.next.store(nullptr, std::memory_order_relaxed);
  cell.detached = false;
  const bool copies = message.bytes > 0 && (message.bytes <= kCopiedAtOnce || !region_->holds(send.in));
  if (copies) keep_copy(cell);
  message.state.store(copies ? Message::State::copied : Message::State::posted, std::memory_order_relaxed);
  out_.push_back(std::move(cell));
  (last_ ? last_->next : mailbox_.first).store(&message, std::memory_order_release);
  last_ = &message;
  return oldest_ + out_.size() - 1;
}

bool Outbox::detach(uint64_t number) {
  Cell& cell = out_.at(number - oldest_);
  Message& message = *cell.message;
  Message::State state = Message::State::posted;
  if (message.state.compare_exchange_strong(state, Message::State::copying, std::memory_order_acquire)) {
    if (message.bytes > 0) keep_copy(cell);
    message.state.store(Message::State::copied, std::memory_order_release);
  } else if (state == Message::State::reading && message.data != cell.copy.get()) {
    return false;
  }
  cell.detached = true;
  return true;
}

void Outbox::keep_copy(Cell& cell) {
  Message& message = *cell.message;
  if (cell.room < message.bytes) {
    cell.copy = region_->allocate(rank_, message.bytes, "a message");
    cell.room = message.bytes;
  }
  std::memcpy(cell.copy.get(), message.data, message.bytes);
  message.data = cell.copy.get();
}

/// A message is reused once it is taken and the receiver, which finds each message through the one before, has found
/// the next.
void Outbox::retire() {
  const uint64_t seen = mailbox_.seen.load(std::memory_order_acquire);
  while (!out_.empty() && oldest_ + 1 < seen && out_.front().detached &&
         out_.front().message->state.load(std::memory_order_acquire) == Message::State::taken) {
    free_.push_back(std::move(out_.front()));
    out_.pop_front();
    ++oldest_;
  }
}

const Operation* Inbox::find(uint64_t number) {
  while (number >= oldest_ + come_.size()) {
    Message* next = (last_ ? last_->next : mailbox_.first).load(std::memory_order_acquire);
    if (next == nullptr) return nullptr;
    come_.push_back(next);
    last_ = next;
    mailbox_.seen.store(oldest_ + come_.size(), std::memory_order_release);
  }
  return &*come_.at(number - oldest_)->operation;
}

bool Inbox::take(uint64_t number, void* out) {
  Message& message = *come_.at(number - oldest_);
  Message::State state = Message::State::posted;
  if (!message.state.compare_exchange_strong(state, Message::State::reading, std::memory_order_acquire)) {
    if (state != Message::State::copied) return false;
    message.state.store(Message::State::reading, std::memory_order_relaxed);  // the sender is done with it
  }
  if (message.bytes > 0) std::memcpy(out, message.data, message.bytes);
  message.state.store(Message::State::taken, std::memory_order_release);
  come_[number - oldest_] = nullptr;
  while (!come_.empty() && come_.front() == nullptr) {
    come_.pop_front();
    ++oldest_;
  }
  return true;
}

}  // namespace tessera::comm
