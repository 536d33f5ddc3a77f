#include <omp.h>
#include <sys/mman.h>

#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/device/device.h"

namespace tessera::device {
namespace {

constexpr int kPoison = 0xFF;
constexpr size_t kPage = 4096;
constexpr std::chrono::milliseconds kLook{5};

/// The device's addresses: pages that nobody may touch, each range standing for memory of the host.
class AddressSpace {
 public:
  std::byte* add(std::byte* real, size_t bytes, const char* what) {
    const size_t reserved = (bytes / kPage + 1) * kPage;  // the end of a range is nobody else's beginning
    void* start = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) fail("device", "no address space is left for {} of {} bytes", what, bytes);
    const std::lock_guard lock(mutex_);
    ranges_.emplace(reinterpret_cast<uintptr_t>(start), Range{real, bytes, reserved});
    return static_cast<std::byte*>(start);
  }

  void remove(std::byte* start) {
    const std::lock_guard lock(mutex_);
    auto range = ranges_.find(reinterpret_cast<uintptr_t>(start));
    munmap(start, range->second.reserved);
    ranges_.erase(range);
  }

  /// The memory behind an address; an internal error if it is not the device's. Null stays null.
  std::byte* real(const void* address) const {
    if (!address) return nullptr;
    const auto number = reinterpret_cast<uintptr_t>(address);
    const std::lock_guard lock(mutex_);
    auto after = ranges_.upper_bound(number);
    check(after != ranges_.begin(), "work gets addresses of the device only");
    const auto& [start, range] = *std::prev(after);
    check(number - start <= range.bytes, "work gets addresses of the device only");
    return range.real + (number - start);
  }

 private:
  struct Range {
    std::byte* real = nullptr;
    size_t bytes = 0, reserved = 0;
  };
  mutable std::mutex mutex_;
  std::map<uintptr_t, Range> ranges_;
};

// One for all devices of the process, since sessions that share states have a device each.
AddressSpace& addresses() {
  static auto* const space = new AddressSpace;
  return *space;
}

/// Set once the queue has come so far.
struct Mark : Event {
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = false;
  std::exception_ptr failure;  ///< of that queue

  void reach(const std::exception_ptr& with) {
    const std::lock_guard lock(mutex);
    reached = true;
    failure = with;
    changed.notify_all();
  }
  void await() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return reached; });
    if (failure) std::rethrow_exception(failure);
  }
};

// The queue whose thread this is; null: it is the host's.
thread_local const void* queue_of_thread = nullptr;

/// A communicator of the host that takes what one on a stream would: addresses of the device, and the handle of the
/// queue that runs it.
class OnStream : public comm::Communicator {
 public:
  explicit OnStream(std::unique_ptr<comm::Communicator> host) : host_(std::move(host)) {}

  int member() const override { return host_->member(); }
  int size() const override { return host_->size(); }
  comm::Ticket start(const comm::Operation& operation) override {
    check(operation.stream && operation.stream == queue_of_thread, "a communication names the queue that runs it");
    check(operation.outer == 1 || bits_of(operation.dtype) % 8 != 0, "a communication's blocks are contiguous");
    if (is_abandoned()) fail_running("device", "the communication was abandoned");
    comm::Operation real = operation;
    real.in = addresses().real(operation.in);
    real.out = addresses().real(operation.out);
    return host_->start(real);
  }
  bool test(comm::Ticket ticket) override { return host_->test(ticket); }
  void wait(comm::Ticket ticket) override {
    try {
      host_->wait(ticket);
    } catch (...) {  // on a stream, it would not learn of this; code that waits for the stream asks for failure()
      std::unique_lock lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      abandoning_.wait(lock, [this] { return abandoned_; });
      throw;
    }
  }
  void abandon() override {
    {
      const std::lock_guard lock(mutex_);
      abandoned_ = true;
    }
    abandoning_.notify_all();
  }
  std::exception_ptr failure() const override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  bool reduces_by_element(const comm::Operation& operation) const override {
    return host_->reduces_by_element(operation);
  }

 private:
  bool is_abandoned() const {
    const std::lock_guard lock(mutex_);
    return abandoned_;
  }

  std::unique_ptr<comm::Communicator> host_;
  mutable std::mutex mutex_;
  std::condition_variable abandoning_;
  bool abandoned_ = false;
  std::exception_ptr failure_;
};

class SimulatedQueue : public Queue {
 public:
  SimulatedQueue(int threads, std::atomic<const char*>* working_on)
      : working_on_(working_on), thread_([this, threads] { loop(threads); }) {}
  ~SimulatedQueue() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void run(kernels::Kernel& kernel, const kernels::KernelArgs& args) override {
    enqueue([this, &kernel, given = Arguments(args)]() mutable {
      for (const void*& input : given.inputs) input = addresses().real(input);
      for (void*& output : given.outputs) output = addresses().real(output);
      kernel.run({given.inputs, given.outputs, addresses().real(given.scratch), this});
    });
  }

  void call(Work work, const kernels::KernelArgs& args) override {
    enqueue([this, work = std::move(work), given = Arguments(args)] {
      work({given.inputs, given.outputs, given.scratch, this});
    });
  }

  void set(void* to, const void* bytes, size_t count) override {
    check(count <= kMostSet, "few bytes are set at once");
    std::array<std::byte, kMostSet> taken;
    std::memcpy(taken.data(), bytes, count);
    enqueue([to, taken, count] { std::memcpy(addresses().real(to), taken.data(), count); });
  }

  void copy(void* to, const void* from, size_t bytes, Direction direction) override {
    if (bytes == 0) return;
    enqueue([to, from, bytes, direction] {
      void* target = direction == Direction::to_host ? to : addresses().real(to);
      const void* source = direction == Direction::to_device ? from : addresses().real(from);
      std::memcpy(target, source, bytes);
    });
  }

  void copy_box(void* to, const Box& to_box, const void* from, const Box& from_box, size_t element_bytes) override {
    enqueue([=] { tessera::copy_box(addresses().real(to), to_box, addresses().real(from), from_box, element_bytes); });
  }

  void clear(void* memory, size_t bytes) override {
    if (bytes > 0) enqueue([memory, bytes] { std::memset(addresses().real(memory), 0, bytes); });
  }

  void discard(void* memory, size_t bytes) override {
    if (bytes > 0) enqueue([memory, bytes] { std::memset(addresses().real(memory), kPoison, bytes); });
  }

  std::shared_ptr<Event> record() override {
    auto mark = std::make_shared<Mark>();
    enqueue_always([this, mark] { mark->reach(failure()); });
    return mark;
  }

  void wait(std::shared_ptr<Event> event) override {
    enqueue([event = std::move(event)] { static_cast<Mark&>(*event).await(); });
  }

  void note(const char* step) override {
    if (working_on_) enqueue([this, step] { working_on_->store(step, std::memory_order_release); });
  }

  void note_time(std::chrono::steady_clock::time_point& time) override {
    enqueue([&time] { time = std::chrono::steady_clock::now(); });
  }

  void finish(const std::function<void()>& look) override {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kLook, [this] { return is_idle(); })) {
      lock.unlock();
      look();
      lock.lock();
    }
    if (std::exception_ptr failed = std::exchange(failure_, nullptr)) std::rethrow_exception(failed);
  }
  void settle() noexcept override {
    std::unique_lock lock(mutex_);
    drops_ = true;
    changed_.wait(lock, [this] { return is_idle(); });
    drops_ = false;
    failure_ = nullptr;
  }

 private:
  struct Arguments {
    explicit Arguments(const kernels::KernelArgs& args)
        : inputs(args.inputs.begin(), args.inputs.end()),
          outputs(args.outputs.begin(), args.outputs.end()),
          scratch(args.scratch) {}
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    void* scratch = nullptr;
  };

  // Work that a failure skips.
  void enqueue(std::function<void()> work) {
    enqueue_always([this, work = std::move(work)] {
      if (failure()) return;
      try {
        work();
      } catch (...) {
        failure_ = std::current_exception();
      }
    });
  }

  void enqueue_always(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      work_.push_back(std::move(work));
    }
    changed_.notify_all();
  }

  // On the thread only: dropped work is work that has failed, so that code that waits for it does not go on.
  const std::exception_ptr& failure() {
    if (drops_ && !failure_)
      failure_ = std::make_exception_ptr(Error(ErrorKind::running, "device", "the queue's work was dropped"));
    return failure_;
  }

  bool is_idle() const { return work_.empty() && !busy_; }

  void loop(int threads) {
    omp_set_num_threads(threads);
    queue_of_thread = this;
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stop_ || !work_.empty(); });
      if (work_.empty()) return;
      std::function<void()> work = std::move(work_.front());
      work_.pop_front();
      busy_ = true;
      lock.unlock();
      work();
      work = nullptr;
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }

  std::atomic<const char*>* working_on_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  std::exception_ptr failure_;       // set by the thread, read by others only while it is idle
  std::atomic<bool> drops_ = false;  // what has not begun
  bool busy_ = false, stop_ = false;
  std::thread thread_;
};

class Simulated : public Device {
 public:
  using Device::Device;

  std::string_view name() const override { return "simulated"; }
  bool uses_host_memory() const override { return false; }

  Memory allocate(size_t bytes, const char* what, const HostMemory& host) override {
    std::shared_ptr<std::byte[]> real = host(bytes, what);
    if (bytes > 0) std::memset(real.get(), kPoison, bytes);
    std::byte* start = addresses().add(real.get(), bytes, what);
    return {start, [real](std::byte* address) { addresses().remove(address); }};
  }
  std::unique_ptr<Queue> make_queue(int threads, std::atomic<const char*>* working_on) override {
    return std::make_unique<SimulatedQueue>(threads, working_on);
  }
  std::unique_ptr<comm::Communicator> communicator(std::unique_ptr<comm::Communicator> host) override {
    return std::make_unique<OnStream>(std::move(host));
  }
  const kernels::Library& kernels() const override { return kernels::cpu_library(); }
};

}  // namespace

std::shared_ptr<Device> make_simulated(int index, std::optional<size_t> capacity) {
  return std::make_shared<Simulated>(index, capacity);
}

}  // namespace tessera::device
