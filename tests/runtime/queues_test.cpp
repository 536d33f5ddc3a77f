#include "tessera/runtime/queues.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string_view>
#include <thread>

#include "error_of.h"
#include "tessera/base/error.h"
#include "tessera/comm/communicator.h"
#include "tessera/runtime/communicators.h"

namespace tessera::runtime {
namespace {

using test::error_of;
using testing::HasSubstr;
using namespace std::chrono_literals;

/// A world of two ranks. The waits of rank 0 throw, and the world goes on.
class FailingWorld : public comm::World {
 public:
  int size() const override { return 2; }
  std::unique_ptr<comm::Communicator> join(int rank, std::span<const int> members) override {
    return std::make_unique<Failing>(inner_->join(rank, members));
  }
  void abort(int rank, std::string_view message, ErrorKind kind) override { inner_->abort(rank, message, kind); }
  std::optional<comm::End> end() const override { return inner_->end(); }
  comm::Flight* flight(int rank) override { return inner_->flight(rank); }

 private:
  class Failing : public comm::Communicator {
   public:
    explicit Failing(std::unique_ptr<comm::Communicator> inner) : inner_(std::move(inner)) {}
    int member() const override { return inner_->member(); }
    int size() const override { return inner_->size(); }
    comm::Ticket start(const comm::Operation&) override { return 0; }
    void wait(comm::Ticket) override { fail_running("test", "the link is down"); }
    bool reduces_by_element(const comm::Operation&) const override { return true; }

   private:
    std::unique_ptr<comm::Communicator> inner_;
  };

  std::unique_ptr<comm::World> inner_ = comm::make_local_world(2);
};

/// The simulated device, which can be out of queues.
class ScarceDevice : public device::Device {
 public:
  std::string_view name() const override { return inner_->name(); }
  bool uses_host_memory() const override { return inner_->uses_host_memory(); }
  bool is_asynchronous() const override { return inner_->is_asynchronous(); }
  device::Memory allocate(size_t bytes, const char* what, const device::HostMemory& host) override {
    return inner_->allocate(bytes, what, host);
  }
  std::unique_ptr<device::Queue> make_queue(int threads, std::atomic<const char*>* working_on) override {
    if (left-- == 0) fail_running("device", "it has no more queues");
    return inner_->make_queue(threads, working_on);
  }
  std::unique_ptr<comm::Communicator> communicator(std::unique_ptr<comm::Communicator> host) override {
    return inner_->communicator(std::move(host));
  }
  const kernels::Library& kernels() const override { return inner_->kernels(); }

  int left = -1;  ///< queues that it makes before it fails once; -1: any number

 private:
  std::shared_ptr<device::Device> inner_ = device::make_simulated();
};

/// Rank 0 of two on the simulated device; the other one never comes.
class LoneRank {
 public:
  explicit LoneRank(std::shared_ptr<comm::World> world) : world_(std::move(world)) {
    communicators_.connect(world_.get());
    queues_.emplace(*device_, 1, communicators_);
  }

  Queues& queues() { return *queues_; }
  ScarceDevice& device() { return *device_; }
  comm::World& world() { return *world_; }
  void end_queues() { queues_.reset(); }

  /// Begins a barrier of both on the device.
  void meet() {
    comm::Communicator& both = communicators_.of({"x"});
    const auto barrier = [&both](const kernels::KernelArgs& args) {
      both.run({.kind = comm::Kind::barrier, .stream = args.stream});
    };
    queues_->of("x").call(barrier, {});
  }

 private:
  std::shared_ptr<comm::World> world_;
  std::shared_ptr<ScarceDevice> device_ = std::make_shared<ScarceDevice>();
  Communicators communicators_{Mesh::parse("x=2"), 0, device_};
  std::optional<Queues> queues_;
};

TEST(Queues, hear_of_a_communication_that_fails_in_a_world_that_goes_on) {
  LoneRank rank(std::make_shared<FailingWorld>());
  rank.meet();
  EXPECT_THAT(error_of([&] { rank.queues().finish(); }, ErrorKind::running), HasSubstr("the link is down"));
  ASSERT_TRUE(rank.world().end().has_value()) << "the other ranks must hear of it";
  EXPECT_THAT(rank.world().end()->reason, HasSubstr("the link is down"));
}

TEST(Queues, end_the_world_by_what_the_rank_heeds_while_it_waits) {
  LoneRank rank(comm::make_local_world(2, {.timeout = 1h}));
  rank.queues().heed([] { fail_running("limit", "it is late"); });
  rank.meet();
  EXPECT_THAT(error_of([&] { rank.queues().finish(); }, ErrorKind::running), HasSubstr("it is late"));
  ASSERT_TRUE(rank.world().end().has_value());
  EXPECT_THAT(rank.world().end()->reason, HasSubstr("rank 0 ended the run: [limit] it is late"));
}

// Where another rank has been the first to end the run.
TEST(Queues, say_what_the_rank_heeds_rather_than_that_the_world_has_ended) {
  LoneRank rank(comm::make_local_world(2, {.timeout = 1h}));
  rank.world().abort(1, "[limit] it is late");
  rank.meet();  // which fails as it starts
  rank.queues().heed([] { fail_running("limit", "late here, too"); });
  EXPECT_THAT(error_of([&] { rank.queues().finish(); }, ErrorKind::running), HasSubstr("[limit] late here, too"));
}

TEST(Queues, settle_what_is_under_way_before_they_end) {
  LoneRank rank(comm::make_local_world(2, {.timeout = 1h}));
  rank.meet();
  std::this_thread::sleep_for(20ms);  // it has begun
  rank.world().abort(1, "rank 1 is gone");
  rank.end_queues();  // hangs, unless it abandons the communication
}

TEST(Queues, drop_what_has_not_begun_when_they_settle) {
  LoneRank rank(comm::make_local_world(2, {.timeout = 1h}));
  std::atomic<int> ran = 0;
  std::atomic<bool> settles = false, goes_on = false;
  device::Queue &compute = rank.queues().compute(), &communication = rank.queues().of("x");
  const auto waits = [&](const kernels::KernelArgs&) {
    ++ran;
    while (!goes_on) std::this_thread::sleep_for(1ms);
  };
  compute.call(waits, {});
  compute.call([&](const kernels::KernelArgs&) { ++ran; }, {});
  communication.wait(compute.record());
  communication.call([&](const kernels::KernelArgs&) { ++ran; }, {});
  while (ran == 0) std::this_thread::sleep_for(1ms);
  std::thread later([&] {
    while (!settles) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(200ms);
    goes_on = true;
  });
  settles = true;
  rank.queues().settle();
  later.join();
  EXPECT_EQ(ran, 1);
  compute.call([&](const kernels::KernelArgs&) { ++ran; }, {});
  EXPECT_NO_THROW(rank.queues().finish()) << "then they are as new";
  EXPECT_EQ(ran, 2);
}

TEST(Queues, go_on_without_one_that_the_device_did_not_make) {
  LoneRank rank(comm::make_local_world(2, {.timeout = 1h}));
  rank.device().left = 1;
  std::atomic<int> ran = 0;
  rank.queues().compute().call([&](const kernels::KernelArgs&) { ++ran; }, {});
  EXPECT_THAT(error_of([&] { rank.queues().of("x"); }, ErrorKind::running), HasSubstr("it has no more queues"));
  EXPECT_NO_THROW(rank.queues().finish());
  rank.queues().settle();
  EXPECT_EQ(ran, 1);
  rank.queues().of("x").call([&](const kernels::KernelArgs&) { ++ran; }, {});
  EXPECT_NO_THROW(rank.queues().finish());
  EXPECT_EQ(ran, 2);
}

}  // namespace
}  // namespace tessera::runtime
