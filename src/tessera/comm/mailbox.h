#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "tessera/comm/operation.h"

namespace tessera::comm {

/// The messages from one member to another, in order: the k-th recv takes the k-th send.
///
/// A message is posted with the sender's own buffer. If the receiver comes before the sender waits, it reads that
/// buffer; else the sender's wait moves the bytes into the message's own copy, and so never waits for the receiver to
/// come. Messages and their copies are used again once both sides are done with them.
class Mailbox {
 public:
  /// The sender's next message; returns its number. Small ones are copied at once.
  uint64_t post(const Operation& send);

  /// Frees the sender's buffer: on return the bytes are copied or taken.
  void detach(uint64_t number);

  /// The number of the receiver's next message.
  uint64_t claim();

  /// What the sender stated, until the message is taken; null if it is not posted yet.
  const Operation* find(uint64_t number);

  /// Moves a posted message's bytes to `out`.
  void take(uint64_t number, void* out);

 private:
  struct Message {
    OwnedOperation operation;
    std::mutex mutex;  // of the bytes
    std::vector<std::byte> copy;
    size_t bytes = 0;
    const void* data = nullptr;  // the sender's buffer, or the copy; null once taken
    bool detached = false;       // the sender is done with it
    bool taken = false;          // the receiver is done with it
  };

  void keep_copy(Message& message);
  Message& cell(uint64_t number) { return *ring_[number & (ring_.size() - 1)]; }
  Message& at(uint64_t number);
  void retire();

  std::mutex mutex_;                            // of everything but the bytes
  std::vector<std::unique_ptr<Message>> ring_;  // a power of two of cells; message k is in cell k modulo their number
  uint64_t oldest_ = 0;                         // messages before it are done with
  std::atomic<uint64_t> posted_{0};             // read without the lock by a receiver that looks again and again
  uint64_t claimed_ = 0;
};

}  // namespace tessera::comm
