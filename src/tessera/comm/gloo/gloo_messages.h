#pragma once

#include <gloo/transport/unbound_buffer.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tessera/comm/gloo/alarm.h"
#include "tessera/comm/gloo/gloo_fabric.h"
#include "tessera/comm/remote/direct_plan.h"
#include "tessera/comm/remote/remote_communicator.h"

namespace tessera::comm {

/// Operations by messages between two members: sends, receives, and collectives in one part (DirectPlan). Gloo moves
/// the messages in a thread of its own; only that thread wakes waits.
class GlooMessages {
 public:
  /// `context` is null in a group of one.
  GlooMessages(std::shared_ptr<GlooContext> context, Alarm& alarm, const DirectPlan::Group& group)
      : context_(std::move(context)), alarm_(alarm), group_(group) {}
  /// Drops messages that have not been sent yet.
  ~GlooMessages();

  /// Whether the group does this operation by messages.
  bool suits(const Operation& operation) const;
  /// Begins an operation that suits. `number` distinguishes it from others of its kind; for a message, from others
  /// between the same two members.
  std::unique_ptr<Transfer> begin(const Staged& staged, uint64_t number);
  /// Waits at most `most` until all messages have left.
  void flush(std::chrono::milliseconds most);

 private:
  using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;
  /// A message's copy, since its sender does not wait for the receiver.
  struct Sent {
    std::vector<std::byte> copy;
    Buffer buffer;
  };
  class Message;

  std::unique_ptr<Transfer> send_or_receive(const Staged& staged, uint64_t number);
  std::unique_ptr<Transfer> exchange(const Staged& staged, uint64_t number);
  void send(int to, uint64_t slot, std::vector<std::byte> copy);
  void reap();

  std::shared_ptr<GlooContext> context_;
  Alarm& alarm_;
  const DirectPlan::Group group_;
  std::map<uint64_t, std::vector<std::byte>> to_myself_;  // by slot

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Sent> sent_;  // under way
  bool stop_ = false;
  std::thread reaper_;  // frees them; from the first send
};

}  // namespace tessera::comm
