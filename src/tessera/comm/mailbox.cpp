#include "tessera/comm/mailbox.h"

#include <algorithm>
#include <cstring>

namespace tessera::comm {
namespace {

constexpr size_t kFirstCells = 8;
constexpr size_t kCopiedAtOnce = 4096;  // bytes

}  // namespace

uint64_t Mailbox::post(const Operation& send) {
  std::lock_guard lock(mutex_);
  uint64_t number = posted_.load(std::memory_order_relaxed);
  if (number - oldest_ == ring_.size()) {
    std::vector<std::unique_ptr<Message>> wider(std::max(kFirstCells, 2 * ring_.size()));
    for (uint64_t old = oldest_; old < number; ++old)
      wider[old & (wider.size() - 1)] = std::move(ring_[old & (ring_.size() - 1)]);
    for (auto& message : wider)
      if (!message) message = std::make_unique<Message>();
    ring_ = std::move(wider);
  }
  Message& message = cell(number);
  std::lock_guard bytes_lock(message.mutex);
  message.operation.assign(send);
  message.bytes = byte_count(send, send.count);
  message.data = send.in;
  message.detached = message.taken = false;
  if (message.bytes <= kCopiedAtOnce) keep_copy(message);
  posted_.store(number + 1, std::memory_order_release);
  return number;
}

void Mailbox::detach(uint64_t number) {
  Message& message = at(number);
  {
    std::lock_guard bytes_lock(message.mutex);
    if (message.data != nullptr && message.data != message.copy.data()) keep_copy(message);
  }
  std::lock_guard lock(mutex_);
  message.detached = true;
  retire();
}

uint64_t Mailbox::claim() {
  std::lock_guard lock(mutex_);
  return claimed_++;
}

const Operation* Mailbox::find(uint64_t number) {
  return number < posted_.load(std::memory_order_acquire) ? &*at(number).operation : nullptr;
}

void Mailbox::take(uint64_t number, void* out) {
  Message& message = at(number);
  {
    std::lock_guard bytes_lock(message.mutex);
    if (message.bytes > 0) std::memcpy(out, message.data, message.bytes);
    message.data = nullptr;
  }
  std::lock_guard lock(mutex_);
  message.taken = true;
  retire();
}

void Mailbox::keep_copy(Message& message) {
  if (message.copy.size() < message.bytes) message.copy.resize(message.bytes);
  if (message.bytes > 0) std::memcpy(message.copy.data(), message.data, message.bytes);
  message.data = message.copy.data();
}

Mailbox::Message& Mailbox::at(uint64_t number) {
  std::lock_guard lock(mutex_);
  return cell(number);
}

void Mailbox::retire() {
  while (oldest_ < posted_ && cell(oldest_).detached && cell(oldest_).taken) ++oldest_;
}

}  // namespace tessera::comm
