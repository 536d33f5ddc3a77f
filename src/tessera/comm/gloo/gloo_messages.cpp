#include "tessera/comm/gloo/gloo_messages.h"

#include <cstring>
#include <functional>

namespace tessera::comm {
namespace {

/// Longer than any wait lasts: the alarm ends it earlier.
constexpr std::chrono::hours kForever{24 * 365};
constexpr std::chrono::milliseconds kNap{1};

/// Gloo's own algorithms use the prefixes up to 8.
uint64_t slot_of(Kind kind, uint64_t number) {
  return (kind == Kind::permute ? uint64_t{0x41} : uint64_t{0x40}) << 56 | number;
}

}  // namespace

/// The two halves of an exchange; either may be absent.
class GlooMessages::Message : public Transfer {
 public:
  explicit Message(Alarm& alarm) : alarm_(alarm) {}

  Buffer in, out;
  std::function<bool()> from_myself;

  bool advance() override {
    if (from_myself) {
      if (from_myself()) return true;
      std::this_thread::sleep_for(kNap);  // it is sent later, by another thread or never
      return false;
    }
    if (in) {
      Alarm::Set alarm(alarm_, [this] { in->abortWaitSend(); });
      if (!in->waitSend(kForever)) return false;
    }
    in.reset();
    if (!out) return true;
    Alarm::Set alarm(alarm_, [this] { out->abortWaitRecv(); });
    return out->waitRecv(kForever);
  }

 private:
  Alarm& alarm_;
};

std::unique_ptr<Transfer> GlooMessages::begin(const Staged& staged, uint64_t number) {
  const Operation& operation = staged.operation();
  const bool permute = operation.kind == Kind::permute;
  const int me = staged.member();
  const int to = operation.kind == Kind::recv ? -1 : operation.to;
  const int from = operation.kind == Kind::send ? -1 : operation.from;
  const size_t bytes = static_cast<size_t>(staged.count()) * staged.element_bytes();
  const uint64_t slot = slot_of(operation.kind, number);
  const auto* in = static_cast<const std::byte*>(staged.in());
  auto message = std::make_unique<Message>(alarm_);
  if (bytes == 0) return message;
  if (to >= 0 && !permute) {
    std::vector<std::byte> copy(in, in + bytes);
    if (to == me)
      to_myself_.emplace(slot, std::move(copy));
    else
      send(to, slot, std::move(copy));
  } else if (to >= 0 && to != me) {
    message->in = context_->createUnboundBuffer(const_cast<std::byte*>(in), bytes);
    message->in->send(to, slot, 0, bytes);
  }
  if (operation.kind == Kind::send) return message;
  if (from < 0) {
    std::memset(staged.out(), 0, bytes);
  } else if (from == me && permute) {
    std::memcpy(staged.out(), in, bytes);
  } else if (from == me) {
    message->from_myself = [this, slot, out = staged.out()] {
      auto own = to_myself_.find(slot);
      if (own == to_myself_.end()) return false;
      std::memcpy(out, own->second.data(), own->second.size());
      to_myself_.erase(own);
      return true;
    };
  } else {
    message->out = context_->createUnboundBuffer(staged.out(), bytes);
    message->out->recv(from, slot, 0, bytes);
  }
  return message;
}

void GlooMessages::send(int to, uint64_t slot, std::vector<std::byte> copy) {
  Sent sent{std::move(copy), nullptr};
  sent.buffer = context_->createUnboundBuffer(sent.copy.data(), sent.copy.size());
  sent.buffer->send(to, slot, 0, sent.copy.size());
  {
    std::lock_guard lock(mutex_);
    sent_.push_back(std::move(sent));
  }
  if (!reaper_.joinable()) reaper_ = std::thread([this] { reap(); });
  changed_.notify_all();
}

void GlooMessages::reap() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !sent_.empty(); });
    if (stop_) return;
    gloo::transport::UnboundBuffer& oldest = *sent_.front().buffer;
    lock.unlock();
    bool gone = true;
    try {
      Alarm::Set alarm(alarm_, [&] { oldest.abortWaitSend(); });
      gone = oldest.waitSend(kForever);
    } catch (const gloo::Exception&) {
      // Its receiver is gone, which whoever waits for that one finds out.
    }
    lock.lock();
    if (gone) sent_.pop_front();
    changed_.notify_all();
  }
}

void GlooMessages::flush(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, most, [this] { return sent_.empty(); });
}

GlooMessages::~GlooMessages() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (reaper_.joinable()) reaper_.join();
}

}  // namespace tessera::comm
