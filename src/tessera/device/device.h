#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/device/memory_limit.h"
#include "tessera/kernels/library.h"
#include "tessera/mesh/box.h"
#include "tessera/mesh/queues.h"

/// The seam between the runtime and what computes: memory, queues, events, copies and the lookup of kernels.
/// docs/devices.md describes what a new device has to do.
namespace tessera::device {

/// Memory of a device, 64-byte aligned. The host may touch it only where Device::uses_host_memory() says so; else the
/// address is good for arithmetic and for queues.
using Memory = std::shared_ptr<std::byte[]>;

/// Gives memory of the host that other ranks may reach. `what` names it in errors: "a rank's arena".
using HostMemory = std::function<std::shared_ptr<std::byte[]>(size_t bytes, const char* what)>;

/// Code of the host, called with the arguments as they are given and with the queue's handle.
using Work = std::function<void(const kernels::KernelArgs&)>;

/// Bytes that Queue::set takes at once.
inline constexpr size_t kMostSet = 16;

enum class Direction : uint8_t { to_device, to_host, within };

/// A point in the work of a queue.
class Event {
 public:
  virtual ~Event() = default;
};

/// Work in order: a piece begins when the piece before it has ended. One thread at a time may call the members. After a
/// piece has failed, an asynchronous queue skips all later pieces, and finish() throws the failure; a synchronous queue
/// throws as the piece is enqueued.
class Queue {
 public:
  virtual ~Queue() = default;

  /// Enqueues a kernel of the device's library on buffers of the device. The kernel must outlive its run; the spans of
  /// `args` need to live only until the call returns.
  virtual void run(kernels::Kernel& kernel, const kernels::KernelArgs& args) = 0;
  /// Calls the host's code in its turn: to begin or end a communication, which names the handle in `args.stream`. Such
  /// code computes with addresses of the device, and touches nothing that is there. Where the handle alone keeps the
  /// order, it may be called at once.
  virtual void call(Work work, const kernels::KernelArgs& args) = 0;
  /// Enqueues that memory of the device gets these bytes, at most kMostSet. They are read before the call returns.
  virtual void set(void* to, const void* bytes, size_t count) = 0;
  /// Enqueues a copy. Memory of the host must stay as it is until the copy has ended.
  virtual void copy(void* to, const void* from, size_t bytes, Direction direction) = 0;
  /// Enqueues a copy of a box's elements to a box of equal extents, within the device.
  virtual void copy_box(void* to, const Box& to_box, const void* from, const Box& from_box, size_t element_bytes) = 0;
  /// Enqueues that these bytes become 0.
  virtual void clear(void* memory, size_t bytes) = 0;
  /// Releases the content of this memory, which nobody needs any more.
  virtual void discard(void* memory, size_t bytes) = 0;

  /// The point after all work that has been enqueued so far.
  virtual std::shared_ptr<Event> record() = 0;
  /// Later work begins after that point of another queue of the device. If that queue has failed, this one fails, too.
  virtual void wait(std::shared_ptr<Event> event) = 0;

  /// Tells what the queue works on from here on, for flight records; null: on nothing. The text must outlive the queue.
  virtual void note(const char* step) = 0;
  /// Writes the time at which the work so far has ended, before finish() returns.
  virtual void note_time(std::chrono::steady_clock::time_point& time) = 0;

  /// Blocks until all work has ended. Throws what a piece of it has thrown; then the queue is as new. While it waits,
  /// it calls `look` every few milliseconds. What that throws ends the wait, and the work goes on: a communication may
  /// wait for a dead peer for ever.
  virtual void finish(const std::function<void()>& look) = 0;
  void finish() {
    finish([] {});
  }
  /// Blocks until no work is under way, and drops failures. May also drop work that has not begun; another queue that
  /// waits for it fails.
  virtual void settle() noexcept = 0;
};

/// What one rank computes on. Devices of one name accept each other's memory, since sessions share states.
class Device {
 public:
  /// `index`: which of the machine's devices of this kind it is. `capacity`: bytes of its memory; nullopt: unknown, or
  /// the host's.
  explicit Device(int index = 0, std::optional<size_t> capacity = std::nullopt)
      : index_(index), limit_(capacity ? std::make_unique<MemoryLimit>(*capacity, "the device's memory") : nullptr) {}
  virtual ~Device() = default;

  virtual std::string_view name() const = 0;
  int index() const { return index_; }
  /// Whether its memory is the host's: then inputs, outputs and weights are used where they are.
  virtual bool uses_host_memory() const = 0;
  /// Whether queues work asynchronously: then communications have queues beside the one that computes. If not, a queue
  /// does its work as it is enqueued.
  virtual bool is_asynchronous() const { return has_queues(name()); }

  /// Bytes of its memory; nullopt: unknown, or the host's.
  std::optional<size_t> capacity() const { return limit_ ? std::optional(limit_->bytes()) : std::nullopt; }
  /// Counts what the rank holds of the capacity; null if that is unknown.
  MemoryLimit* limit() const { return limit_.get(); }
  /// Memory of at least `bytes` bytes. Devices whose memory is the host's take it from `host`. Throws a user error that
  /// names `what` if there is not so much.
  virtual Memory allocate(size_t bytes, const char* what, const HostMemory& host) = 0;
  /// Memory of the host through which parts of tensors go to the device and back: pinned, where copies from such memory
  /// are faster. Throws a user error that names `what` if there is not so much.
  virtual std::shared_ptr<std::byte[]> allocate_staging(size_t bytes, const char* what);
  /// `threads`: of the CPU, for devices whose kernels run there. `working_on` is told what the queue notes.
  virtual std::unique_ptr<Queue> make_queue(int threads, std::atomic<const char*>* working_on) = 0;

  /// The rank's membership of a group, for operations on the device's memory, which a queue runs and which name its
  /// handle (comm::Operation::stream). If peers die, its operations may wait until Communicator::abandon() ends them.
  /// `host`: the same for the host's memory, over which members find each other.
  virtual std::unique_ptr<comm::Communicator> communicator(std::unique_ptr<comm::Communicator> host) = 0;

  virtual const kernels::Library& kernels() const = 0;

 private:
  int index_;
  std::unique_ptr<MemoryLimit> limit_;
};

/// The kinds that make_device() knows.
const std::vector<std::string>& device_names();
/// A device for one rank, by its name: "cpu"; "simulated"; "simulated:512M", with so much memory; "simulated:2x512M",
/// of which a machine has two. `local_rank`: the rank's number among those of its machine, which gets the device of
/// this index. A user error for an unknown name, and if the machine has not so many devices.
std::shared_ptr<Device> make_device(std::string_view name, int local_rank = 0);

std::shared_ptr<Device> make_cpu();
/// A CPU that pretends to be an accelerator, for tests: it computes on threads of its own, behind the host's back, and
/// its memory faults if the host touches it. New and discarded memory is full of 0xFF bytes (NaN, -1), and work on an
/// address that is not the device's fails; so does a communication without the handle of its queue. A communication
/// whose peer has died ends only when it is abandoned.
std::shared_ptr<Device> make_simulated(int index = 0, std::optional<size_t> capacity = std::nullopt);

}  // namespace tessera::device
