#include "tessera/comm/gloo/gloo_messages.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>

#include "tessera/comm/reduce.h"
#include "tessera/comm/remote/direct_plan.h"

namespace tessera::comm {
namespace {

constexpr std::chrono::milliseconds kNap{1};

/// A message costs as much as this many bytes.
constexpr size_t kMessage = 64 << 10;
/// Beyond this many bytes, a reduce_scatter reduces in pieces (gloo_collective.h).
constexpr size_t kMostAtOnce = 1 << 20;

/// The most bytes that a reduction's owners receive at once, from all others. They receive (n - 1) b for b bytes, where
/// Gloo's ring takes more messages, but moves 2 (n - 1) b / n only: (n - 1) b (n - 2) / n fewer. Two members move no
/// more than the ring.
size_t most_in_one_part(int members) {
  const auto n = static_cast<size_t>(members);
  return n <= 2 ? kMostAtOnce : std::min(kMostAtOnce, kMessage * n / (n - 2));
}

/// Gloo's own algorithms use the prefixes up to 8.
uint64_t message_slot(uint64_t number) {
  return uint64_t{0x40} << 56 | number;
}
uint64_t collective_slot(uint64_t number) {
  return uint64_t{0x41} << 56 | number;
}

}  // namespace

bool GlooMessages::suits(const Operation& operation) const {
  switch (operation.kind) {
    case Kind::send:
    case Kind::recv:
      return true;
    case Kind::all_reduce:
    case Kind::reduce:
      return DirectPlan::suits(operation, group_) &&
             DirectPlan::takes_one_part(operation, group_.size, most_in_one_part(group_.size));
    case Kind::reduce_scatter: {
      const int64_t count = operation.outer * sum_of(operation.counts) * operation.inner;
      return DirectPlan::suits(operation, group_) && byte_count(operation, count) <= kMostAtOnce;
    }
    default:
      return DirectPlan::suits(operation, group_);
  }
}

/// Sends and receives, and the step that follows.
class GlooMessages::Message : public Transfer {
 public:
  explicit Message(Alarm& alarm) : alarm_(alarm) {}

  Buffer in, out;
  int sends = 0, receives = 0;  // under way, of these buffers
  std::function<bool()> from_myself;
  std::unique_ptr<std::byte[]> received;  // received parts, to be reduced
  std::function<void()> then;

  bool advance() override {
    if (from_myself) {
      if (from_myself()) return true;
      std::this_thread::sleep_for(kNap);  // it leaves later, through another thread, or never
      return false;
    }
    if (sends > 0) {
      Alarm::Set alarm(alarm_, [this] { in->abortWaitSend(); });
      for (; sends > 0; --sends)
        if (!in->waitSend(kForever)) return false;
    }
    if (receives > 0) {
      Alarm::Set alarm(alarm_, [this] { out->abortWaitRecv(); });
      for (; receives > 0; --receives)
        if (!out->waitRecv(kForever)) return false;
    }
    if (then) then();
    return true;
  }

 private:
  Alarm& alarm_;
};

std::unique_ptr<Transfer> GlooMessages::begin(const Staged& staged, uint64_t number) {
  const Kind kind = staged.operation().kind;
  return kind == Kind::send || kind == Kind::recv ? send_or_receive(staged, number) : exchange(staged, number);
}

std::unique_ptr<Transfer> GlooMessages::send_or_receive(const Staged& staged, uint64_t number) {
  const Operation& operation = staged.operation();
  const int me = staged.member();
  const size_t bytes = static_cast<size_t>(staged.count()) * staged.element_bytes();
  const uint64_t slot = message_slot(number);
  auto message = std::make_unique<Message>(alarm_);
  if (bytes == 0) return message;
  if (operation.kind == Kind::send) {
    if (operation.to < 0) return message;
    const auto* in = static_cast<const std::byte*>(staged.in());
    std::vector<std::byte> copy(in, in + bytes);
    if (operation.to == me)
      to_myself_.emplace(slot, std::move(copy));
    else
      send(operation.to, slot, std::move(copy));
  } else if (operation.from < 0) {
    std::memset(staged.out(), 0, bytes);
  } else if (operation.from == me) {
    message->from_myself = [this, slot, out = staged.out()] {
      auto own = to_myself_.find(slot);
      if (own == to_myself_.end()) return false;
      std::memcpy(out, own->second.data(), own->second.size());
      to_myself_.erase(own);
      return true;
    };
  } else {
    message->out = context_->createUnboundBuffer(staged.out(), bytes);
    message->out->recv(operation.from, slot, 0, bytes);
    message->receives = 1;
  }
  return message;
}

/// Every member's ranges of `in` go to their owners, which reduce them; or blocks of `in` go to their members.
std::unique_ptr<Transfer> GlooMessages::exchange(const Staged& staged, uint64_t number) {
  using Range = DirectPlan::Range;
  const DirectPlan plan(staged, most_in_one_part(staged.size()));
  const size_t me = plan.me(), size = plan.size();
  const uint64_t slot = collective_slot(number);
  auto message = std::make_unique<Message>(alarm_);
  auto to = [&](size_t j) { return plan.reduces() ? plan.owned_by(j) : plan.sent_to(j); };
  // A part for each of the other members, or blocks for their members.
  const Range mine = plan.reduces() ? plan.owned_by(me) : Range{};
  auto from = [&](size_t step) {
    if (!plan.reduces()) return plan.received_from((me + step) % size);
    return Range{static_cast<int64_t>(step - 1) * mine.count, mine.count};
  };
  int64_t sent_end = 0, received_end = 0;
  for (size_t step = 1; step < size; ++step) {
    const Range sent = to((me + step) % size), got = from(step);
    if (sent.count > 0) sent_end = std::max(sent_end, sent.offset + sent.count), ++message->sends;
    if (got.count > 0) received_end = std::max(received_end, got.offset + got.count), ++message->receives;
  }
  auto* in = static_cast<std::byte*>(const_cast<void*>(staged.in()));
  auto* out = static_cast<std::byte*>(staged.out());
  if (plan.reduces()) {
    message->received = std::make_unique_for_overwrite<std::byte[]>(plan.bytes_of(received_end));
    message->then = [&staged, plan, mine, in, out, parts = message->received.get()] {
      if (mine.count == 0) return;
      std::array<const void*, DirectPlan::kMostMembers> inputs{};
      inputs[plan.me()] = in + plan.bytes_of(mine.offset);
      for (size_t step = 1; step < plan.size(); ++step)
        inputs[(plan.me() + step) % plan.size()] = parts + (step - 1) * plan.bytes_of(mine.count);
      void* result = out;
      reduce_elements(staged.dtype(), staged.reduction(), {inputs.data(), plan.size()}, {&result, 1}, mine.count);
    };
    out = message->received.get();
  }
  if (received_end > 0) message->out = context_->createUnboundBuffer(out, plan.bytes_of(received_end));
  if (sent_end > 0) message->in = context_->createUnboundBuffer(in, plan.bytes_of(sent_end));
  for (size_t step = 1; step < size; ++step) {
    const Range got = from(step);
    if (got.count > 0)
      message->out->recv(static_cast<int>((me + step) % size), slot, plan.bytes_of(got.offset),
                         plan.bytes_of(got.count));
  }
  for (size_t step = 1; step < size; ++step) {
    const size_t other = (me + step) % size;
    const Range sent = to(other);
    if (sent.count > 0)
      message->in->send(static_cast<int>(other), slot, plan.bytes_of(sent.offset), plan.bytes_of(sent.count));
  }
  if (!plan.reduces()) plan.copy_own(in);
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
      // Its receiver is gone, which a wait for that rank will find out.
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
