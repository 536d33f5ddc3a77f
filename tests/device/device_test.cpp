#include "tessera/device/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <future>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/ir/pages.h"

namespace tessera::device {
namespace {

using kernels::KernelArgs;
using testing::HasSubstr;

std::shared_ptr<std::byte[]> host_memory(size_t bytes, const char* what) {
  return allocate_pages(bytes, what);
}

/// A kernel of one function.
class Computation : public kernels::Kernel {
 public:
  explicit Computation(std::function<void(const KernelArgs&)> compute) : compute_(std::move(compute)) {}
  void run(const KernelArgs& args) override { compute_(args); }

 private:
  std::function<void(const KernelArgs&)> compute_;
};

/// Adds 1 to every element.
Computation increment(size_t count) {
  return Computation([count](const KernelArgs& args) {
    for (size_t i = 0; i < count; ++i) args.out<int32_t>()[i] = args.in<int32_t>(0)[i] + 1;
  });
}

Computation nothing() {
  return Computation([](const KernelArgs&) {});
}

class Devices : public testing::TestWithParam<std::string> {
 protected:
  std::shared_ptr<Device> device_ = make_device(GetParam());

  Memory memory(size_t bytes) { return device_->allocate(bytes, "a test", host_memory); }
};
INSTANTIATE_TEST_SUITE_P(OfName, Devices, testing::ValuesIn(device_names()),
                         [](const auto& info) { return info.param; });

TEST_P(Devices, do_work_in_order) {
  constexpr size_t kCount = 1000;
  std::vector<int32_t> numbers(kCount), back(kCount);
  std::iota(numbers.begin(), numbers.end(), 0);
  const Memory a = memory(kCount * 4), b = memory(kCount * 4);
  auto queue = device_->make_queue(1, nullptr);
  queue->copy(a.get(), numbers.data(), kCount * 4, Direction::to_device);
  Computation kernel = increment(kCount);
  for (int round = 0; round < 10; ++round) {
    const void* in = round % 2 ? b.get() : a.get();
    void* out = round % 2 ? a.get() : b.get();
    queue->run(kernel, {std::span(&in, 1), std::span(&out, 1)});
  }
  queue->copy(b.get(), a.get(), kCount * 4, Direction::within);
  queue->copy(back.data(), b.get(), kCount * 4, Direction::to_host);
  queue->finish();
  for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(back[i], static_cast<int32_t>(i) + 10);
}

// Kernels choose forms for aligned operands by these addresses.
TEST_P(Devices, kernels_see_how_operands_are_aligned) {
  auto queue = device_->make_queue(1, nullptr);
  for (const size_t bytes : {1, 100, 5000}) {
    const Memory a = memory(bytes + 4);
    uintptr_t first = 1, fifth = 0;
    Computation kernel([&](const KernelArgs& args) {
      first = reinterpret_cast<uintptr_t>(args.inputs[0]);
      fifth = reinterpret_cast<uintptr_t>(args.inputs[1]);
    });
    const void* in[] = {a.get(), a.get() + 4};
    queue->run(kernel, {in, {}});
    queue->finish();
    EXPECT_EQ(first % 64, 0u);
    EXPECT_EQ(fifth, first + 4);
  }
}

TEST_P(Devices, events_order_the_work_of_two_queues) {
  const Memory a = memory(4), b = memory(4);
  auto first = device_->make_queue(1, nullptr), second = device_->make_queue(1, nullptr);
  int32_t number = 1, back = 0;
  Computation slow([work = increment(1)](const KernelArgs& args) mutable {
    std::this_thread::yield();
    work.run(args);
  });
  for (int round = 0; round < 100; ++round) {
    first->copy(a.get(), &number, 4, Direction::to_device);
    const void* in = a.get();
    void* out = b.get();
    first->run(slow, {std::span(&in, 1), std::span(&out, 1)});
    second->wait(first->record());
    second->copy(&back, b.get(), 4, Direction::to_host);
    second->finish();
    ASSERT_EQ(back, number + 1);
    number = back;
  }
  first->finish();
}

TEST_P(Devices, copy_boxes_and_clear) {
  std::vector<int32_t> numbers(12), back(4);
  std::iota(numbers.begin(), numbers.end(), 0);
  const Memory whole = memory(48), part = memory(16);
  auto queue = device_->make_queue(1, nullptr);
  queue->copy(whole.get(), numbers.data(), 48, Direction::to_device);
  queue->copy_box(part.get(), {{2, 2}, {0, 0}, {2, 2}}, whole.get(), {{3, 4}, {1, 2}, {2, 2}}, 4);
  queue->copy(back.data(), part.get(), 16, Direction::to_host);
  queue->finish();
  EXPECT_EQ(back, (std::vector<int32_t>{6, 7, 10, 11}));
  queue->clear(part.get() + 4, 8);
  queue->copy(back.data(), part.get(), 16, Direction::to_host);
  queue->finish();
  EXPECT_EQ(back, (std::vector<int32_t>{6, 0, 0, 11}));
}

TEST_P(Devices, set_a_few_bytes) {
  const Memory a = memory(16);
  auto queue = device_->make_queue(1, nullptr);
  int64_t number = 5, back = 0;
  queue->set(a.get() + 8, &number, 8);
  number = 7;  // it has been read
  queue->copy(&back, a.get() + 8, 8, Direction::to_host);
  queue->finish();
  EXPECT_EQ(back, 5);
}

TEST_P(Devices, write_times_and_notes) {
  std::atomic<const char*> working_on{nullptr};
  auto queue = device_->make_queue(1, &working_on);
  const auto begin = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point one, two;
  queue->note("a step");
  queue->note_time(one);
  queue->note_time(two);
  queue->finish();
  EXPECT_STREQ(working_on.load(), "a step");
  EXPECT_LE(begin, one);
  EXPECT_LE(one, two);
}

TEST(Device, of_an_unknown_name_is_refused) {
  try {
    make_device("tpu");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    EXPECT_THAT(error.what(), HasSubstr("there is no device 'tpu'; the devices are: cpu, simulated"));
  }
}

TEST(Device, states_its_capacity) {
  EXPECT_EQ(make_device("cpu")->capacity(), std::nullopt);
  EXPECT_EQ(make_device("simulated")->capacity(), std::nullopt);
  const auto sized = make_device("simulated:2M");
  EXPECT_EQ(sized->capacity(), size_t{2} << 20);
  EXPECT_EQ(sized->name(), "simulated");
  for (const char* name : {"simulated:", "simulated:0", "simulated:x", "simulated:2Q", "simulated:0x1M",
                           "simulated:x1M", "simulated:2x"}) {
    try {
      make_device(name);
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::user);
      EXPECT_THAT(error.what(), HasSubstr("has no valid size of memory"));
    }
  }
}

TEST(Device, knows_which_one_of_the_machine_it_is) {
  EXPECT_EQ(make_device("cpu", 3)->index(), 0);
  EXPECT_EQ(make_device("simulated", 3)->index(), 3);
  const auto second = make_device("simulated:2x1M", 1);
  EXPECT_EQ(second->index(), 1);
  EXPECT_EQ(second->capacity(), size_t{1} << 20);
  try {
    make_device("simulated:2x1M", 2);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::user);
    EXPECT_THAT(error.what(), HasSubstr("'simulated:2x1M' is a machine with 2 devices, but its rank 2 (from 0)"));
  }
}

class Simulated : public testing::Test {
 protected:
  std::shared_ptr<Device> device_ = make_simulated();
  std::unique_ptr<Queue> queue_ = device_->make_queue(1, nullptr);

  Memory memory(size_t bytes) { return device_->allocate(bytes, "a test", host_memory); }
};

TEST_F(Simulated, the_host_cannot_touch_its_memory) {
  const Memory a = memory(8);
  auto* address = reinterpret_cast<volatile int*>(a.get());
  EXPECT_DEATH((void)*address, "");
  EXPECT_DEATH(*address = 1, "");
}

TEST_F(Simulated, work_on_memory_of_the_host_fails) {
  int32_t mine = 0;
  const Memory a = memory(4);
  Computation kernel = nothing();
  for (int place = 0; place < 3; ++place) {
    const void* in = place == 0 ? static_cast<const void*>(&mine) : a.get();
    void* out = place == 1 ? static_cast<void*>(&mine) : a.get();
    queue_->run(kernel, {std::span(&in, 1), std::span(&out, 1), place == 2 ? &mine : nullptr});
    EXPECT_THROW(queue_->finish(), Error) << place;
    EXPECT_NO_THROW(queue_->finish()) << "it is as new";
  }
  queue_->copy(&mine, &mine, 4, Direction::within);
  EXPECT_THROW(queue_->finish(), Error);
}

TEST_F(Simulated, the_hosts_code_cannot_touch_its_memory_in_its_turn) {
  const Memory a = memory(8);
  const auto write = [&] {
    const auto queue = device_->make_queue(1, nullptr);  // the process that dies has threads of its own only
    void* out = a.get();
    queue->call([](const KernelArgs& args) { *args.out<volatile int>() = 1; }, {{}, std::span(&out, 1)});
    queue->finish();
  };
  EXPECT_DEATH(write(), "");
}

TEST_F(Simulated, communications_take_its_addresses) {
  const auto world = comm::make_local_world(1, {});
  const std::vector<int> members{0};
  const auto communicator = device_->communicator(world->join(0, members));
  const Memory a = memory(4), b = memory(4);
  const float number = 2.5F;
  float back = 0;
  queue_->copy(a.get(), &number, 4, Direction::to_device);
  queue_->call(
      [&](const KernelArgs& args) {
        communicator->run(
            {.kind = comm::Kind::all_reduce, .in = a.get(), .out = b.get(), .count = 1, .stream = args.stream});
      },
      {});
  queue_->copy(&back, b.get(), 4, Direction::to_host);
  queue_->finish();
  EXPECT_EQ(back, number);
}

TEST_F(Simulated, communications_of_strided_blocks_fail) {
  const auto world = comm::make_local_world(1, {});
  const std::vector<int> members{0};
  const auto communicator = device_->communicator(world->join(0, members));
  const Memory a = memory(8), b = memory(8);
  const std::vector<int64_t> counts{1};
  using comm::Kind;
  for (const auto& [kind, outer] : {std::pair(Kind::all_gather, 1), {Kind::all_gather, 2}, {Kind::gather, 2}}) {
    queue_->call(
        [&, kind = kind, outer = outer](const KernelArgs& args) {
          communicator->run({.kind = kind,
                             .in = a.get(),
                             .out = b.get(),
                             .count = outer,
                             .outer = outer,
                             .counts = counts,
                             .stream = args.stream});
        },
        {});
    if (outer == 1)
      EXPECT_NO_THROW(queue_->finish());
    else
      EXPECT_THROW(queue_->finish(), Error);
  }
}

TEST_F(Simulated, communications_name_the_queue_that_runs_them) {
  const auto world = comm::make_local_world(1, {});
  const std::vector<int> members{0};
  const auto communicator = device_->communicator(world->join(0, members));
  const auto other = device_->make_queue(1, nullptr);
  void* stream_of_other = nullptr;
  other->call([&](const KernelArgs& args) { stream_of_other = args.stream; }, {});
  other->finish();
  enum class Named { own, none, other };
  for (const Named named : {Named::own, Named::none, Named::other}) {
    queue_->call(
        [&](const KernelArgs& args) {
          comm::Operation operation;
          if (named != Named::none) operation.stream = named == Named::own ? args.stream : stream_of_other;
          communicator->run(operation);
        },
        {});
    if (named == Named::own)
      EXPECT_NO_THROW(queue_->finish());
    else
      EXPECT_THROW(queue_->finish(), Error);
  }
}

TEST_F(Simulated, who_waits_for_a_queue_hears_of_other_things) {
  std::promise<void> released;
  queue_->call([&](const KernelArgs&) { released.get_future().wait(); }, {});
  int looked = 0;
  EXPECT_THROW(queue_->finish([&] {
    if (++looked == 3) throw std::runtime_error("a peer is dead");
  }),
               std::runtime_error);
  EXPECT_EQ(looked, 3);
  released.set_value();
  EXPECT_NO_THROW(queue_->finish()) << "the work went on";
}

TEST_F(Simulated, communications_end_when_they_are_abandoned) {
  const auto world = comm::make_local_world(2, {});
  const std::vector<int> members{0, 1};
  const auto communicator = device_->communicator(world->join(0, members));
  const Memory a = memory(4), b = memory(4);
  std::atomic<bool> started = false;
  queue_->call(
      [&](const KernelArgs& args) {
        const comm::Ticket ticket = communicator->start(
            {.kind = comm::Kind::all_reduce, .in = a.get(), .out = b.get(), .count = 1, .stream = args.stream});
        started = true;
        communicator->wait(ticket);
      },
      {});
  while (!started) std::this_thread::yield();
  world->abort(1, "it died");
  int looked = 0;
  EXPECT_THROW(queue_->finish([&] {
    if (++looked == 3) throw std::runtime_error("a peer is dead");
  }),
               std::runtime_error)
      << "the communication does not hear of it";
  communicator->abandon();
  EXPECT_THROW(queue_->finish(), Error);
}

TEST_F(Simulated, new_and_discarded_memory_is_poisoned) {
  const Memory a = memory(8);
  int64_t value = 5, back = 0;
  queue_->copy(&back, a.get(), 8, Direction::to_host);
  queue_->finish();
  EXPECT_EQ(back, -1);
  queue_->copy(a.get(), &value, 8, Direction::to_device);
  queue_->discard(a.get(), 8);
  queue_->copy(&back, a.get(), 8, Direction::to_host);
  queue_->finish();
  EXPECT_EQ(back, -1);
}

TEST_F(Simulated, a_failure_skips_what_follows_and_fails_queues_that_wait) {
  auto other = device_->make_queue(1, nullptr);
  bool ran = false;
  queue_->call([](const KernelArgs&) { throw std::runtime_error("it broke"); }, {});
  queue_->call([&](const KernelArgs&) { ran = true; }, {});
  other->wait(queue_->record());
  other->call([&](const KernelArgs&) { ran = true; }, {});
  for (Queue* failed : {other.get(), queue_.get()}) {
    try {
      failed->finish();
      FAIL();
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "it broke");
    }
  }
  EXPECT_FALSE(ran);
  queue_->call([&](const KernelArgs&) { ran = true; }, {});
  queue_->finish();
  EXPECT_TRUE(ran);
}

// Beginnings, ends and empty memory: a range's end is not the next one's beginning.
TEST_F(Simulated, addresses_count_from_the_beginning_to_the_end) {
  const Memory a = memory(4096), empty = memory(0), b = memory(1);
  Computation kernel = nothing();
  for (std::byte* address : {a.get(), a.get() + 4096, empty.get(), b.get(), b.get() + 1}) {
    const void* in = address;
    queue_->run(kernel, {std::span(&in, 1), {}});
    EXPECT_NO_THROW(queue_->finish());
  }
  const void* beyond = a.get() + 4097;
  queue_->run(kernel, {std::span(&beyond, 1), {}});
  EXPECT_THROW(queue_->finish(), Error);
}

}  // namespace
}  // namespace tessera::device
