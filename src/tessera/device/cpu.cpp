#include <cstring>
#include <utility>

#include "tessera/device/device.h"

namespace tessera::device {
namespace {

struct Passed : Event {};

/// Does everything at once, on the caller's thread.
class CpuQueue : public Queue {
 public:
  explicit CpuQueue(std::atomic<const char*>* working_on) : working_on_(working_on) {}

  void run(kernels::Kernel& kernel, const kernels::KernelArgs& args) override { kernel.run(args); }
  void call(Work work, const kernels::KernelArgs& args) override { work(args); }
  void set(void* to, const void* bytes, size_t count) override { std::memcpy(to, bytes, count); }
  void copy(void* to, const void* from, size_t bytes, Direction) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void copy_box(void* to, const Box& to_box, const void* from, const Box& from_box, size_t element_bytes) override {
    tessera::copy_box(to, to_box, from, from_box, element_bytes);
  }
  void clear(void* memory, size_t bytes) override {
    if (bytes > 0) std::memset(memory, 0, bytes);
  }
  void discard(void*, size_t) override {}
  std::shared_ptr<Event> record() override { return std::make_shared<Passed>(); }
  void wait(std::shared_ptr<Event>) override {}
  void note(const char* step) override {
    if (working_on_) working_on_->store(step, std::memory_order_release);
  }
  void note_time(std::chrono::steady_clock::time_point& time) override { time = std::chrono::steady_clock::now(); }
  void finish(const std::function<void()>&) override {}
  void settle() noexcept override {}

 private:
  std::atomic<const char*>* working_on_;
};

class Cpu : public Device {
 public:
  std::string_view name() const override { return "cpu"; }
  bool uses_host_memory() const override { return true; }
  Memory allocate(size_t bytes, const char* what, const HostMemory& host) override { return host(bytes, what); }
  std::unique_ptr<Queue> make_queue(int, std::atomic<const char*>* working_on) override {
    return std::make_unique<CpuQueue>(working_on);
  }
  std::unique_ptr<comm::Communicator> communicator(std::unique_ptr<comm::Communicator> host) override { return host; }
  const kernels::Library& kernels() const override { return kernels::cpu_library(); }
};

}  // namespace

std::shared_ptr<Device> make_cpu() {
  return std::make_shared<Cpu>();
}

}  // namespace tessera::device
