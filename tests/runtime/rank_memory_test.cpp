#include "tessera/runtime/rank_memory.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tessera/runtime/rank_state.h"

namespace tessera::runtime {
namespace {

/// The simulated device, counting how often it allocates memory for copies to and from the host.
class CountsStaging : public device::Device {
 public:
  std::string_view name() const override { return real_->name(); }
  bool uses_host_memory() const override { return real_->uses_host_memory(); }
  bool is_asynchronous() const override { return real_->is_asynchronous(); }
  device::Memory allocate(size_t bytes, const char* what, const device::HostMemory& host) override {
    return real_->allocate(bytes, what, host);
  }
  std::shared_ptr<std::byte[]> allocate_staging(size_t bytes, const char* what) override {
    ++staged;
    return real_->allocate_staging(bytes, what);
  }
  std::unique_ptr<device::Queue> make_queue(int threads, std::atomic<const char*>* working_on) override {
    return real_->make_queue(threads, working_on);
  }
  std::unique_ptr<comm::Communicator> communicator(std::unique_ptr<comm::Communicator> host) override {
    return real_->communicator(std::move(host));
  }
  const kernels::Library& kernels() const override { return real_->kernels(); }

  int staged = 0;

 private:
  std::shared_ptr<device::Device> real_ = device::make_simulated();
};

// As loops and branches do with their conditions, in every iteration.
TEST(RankMemory, reads_numbers_through_the_same_staging_memory) {
  const auto device = std::make_shared<CountsStaging>();
  const auto world = comm::make_local_world(1);
  device::MemoryLimit limit(0);
  RankStates states;
  RankState rank(Mesh(), 0, 1, limit, states, device, std::make_shared<SharedWeights>());
  rank.connect(world.get());
  RankMemory& memory = rank.memory();
  const device::Memory numbers = memory.allocate(2 * sizeof(int64_t), "numbers");
  memory.write(numbers.get(), 2 * sizeof(int64_t), [](void* to) {
    const int64_t values[] = {3, 5};
    std::memcpy(to, values, sizeof values);
  });
  const int before = device->staged;
  for (int64_t i = 0; i < 10; ++i) {
    int64_t value = 0;
    memory.read(numbers.get() + (i % 2) * sizeof value, sizeof value,
                [&](const void* bytes) { std::memcpy(&value, bytes, sizeof value); });
    EXPECT_EQ(value, i % 2 == 0 ? 3 : 5);
  }
  EXPECT_EQ(device->staged, before + 1);
}

}  // namespace
}  // namespace tessera::runtime
