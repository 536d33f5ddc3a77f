#include "tessera/runtime/progress_thread.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#include "tessera/comm/communicator.h"
#include "tessera/runtime/communicators.h"

namespace tessera::runtime {
namespace {

using namespace std::chrono_literals;

// Until the other thread has asked so often.
void wait_for(const std::atomic<int>& asked, int times) {
  const auto deadline = std::chrono::steady_clock::now() + 30s;
  while (asked < times) {
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("the other thread does not ask");
    std::this_thread::yield();
  }
}

TEST(ProgressThread, asks_while_it_may_and_never_else) {
  std::atomic<int> asked = 0;
  std::atomic<bool> is_lent = false, is_wrong = false;
  {
    ProgressThread thread([&] {
      is_wrong = is_wrong || !is_lent;
      ++asked;
    });
    for (int turn = 0; turn < 20; ++turn) {
      const int before = asked;
      is_lent = true;
      thread.lend();
      wait_for(asked, before + 1 + turn % 2);
      EXPECT_EQ(thread.take_back(), nullptr);
      is_lent = false;
    }
  }
  EXPECT_FALSE(is_wrong);
}

TEST(ProgressThread, hands_over_what_was_thrown_and_goes_on) {
  std::atomic<int> asked = 0;
  ProgressThread thread([&] {
    if (++asked == 1) throw std::runtime_error("the peer has died");
  });
  thread.lend();
  wait_for(asked, 1);
  EXPECT_THROW(std::rethrow_exception(thread.take_back()), std::runtime_error);
  thread.lend();
  wait_for(asked, 2);
  EXPECT_EQ(thread.take_back(), nullptr);
}

TEST(ProgressThread, asks_nothing_before_it_is_lent_anything) {
  std::atomic<int> asked = 0;
  ProgressThread thread([&] { ++asked; });
  EXPECT_EQ(thread.take_back(), nullptr);
  std::this_thread::sleep_for(10ms);
  EXPECT_EQ(asked, 0);
}

/// While it lives, the system gives no threads: their stacks would need more addresses than there are.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_getattr_default_np(&huge);
    pthread_attr_setstacksize(&huge, size_t{1} << 60);
    pthread_setattr_default_np(&huge);
    pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_;
};

TEST(ProgressThread, is_left_out_where_the_system_gives_none) {
  std::atomic<int> asked = 0;
  ProgressThread thread([&] { ++asked; });
  {
    const NoThreads none;
    ASSERT_THROW(std::thread([] {}).join(), std::system_error);
    EXPECT_NO_THROW(thread.lend());
    EXPECT_EQ(thread.take_back(), nullptr);
  }
  thread.lend();
  wait_for(asked, 1);
  EXPECT_EQ(thread.take_back(), nullptr);
}

/// A world of one rank whose communications advance only by tests.
class TestedWorld : public comm::World {
 public:
  int size() const override { return 1; }
  bool advances_by_tests() const override { return true; }
  std::unique_ptr<comm::Communicator> join(int rank, std::span<const int> members) override {
    return inner_->join(rank, members);
  }
  void abort(int rank, std::string_view message, ErrorKind kind) override { inner_->abort(rank, message, kind); }
  comm::Flight* flight(int rank) override { return inner_->flight(rank); }

 private:
  std::unique_ptr<comm::World> inner_ = comm::make_local_world(1);
};

/// A communication that is under way; each test calls `tested`.
class Tested : public bind::Communication {
 public:
  explicit Tested(std::function<void()> tested) : tested_(std::move(tested)) {}
  size_t scratch_bytes() const override { return 0; }
  void start(device::Queue&, const kernels::KernelArgs&) override {}
  void advance() override { tested_(); }
  void wait(device::Queue&, const kernels::KernelArgs&) override {}

 private:
  std::function<void()> tested_;
};

/// What advance_beside() throws: the message, empty if nothing. Once each has happened, `fails` and `kernel_fails` say
/// which of them throws.
std::string thrown_beside(bool fails, bool kernel_fails) {
  TestedWorld world;
  std::atomic<int> tests = 0;
  Tested communication([&] {
    if (++tests == 1 && fails) throw std::runtime_error("the peer has died");
  });
  Communicators communicators(Mesh::parse("x=1"), 0, device::make_cpu());
  communicators.connect(&world);
  communicators.note_start(&communication);
  std::string message;
  try {
    communicators.advance_beside([&] {
      wait_for(tests, 1);
      if (kernel_fails) throw std::runtime_error("the kernel fails");
    });
  } catch (const std::runtime_error& error) {
    message = error.what();
  }
  // The thread goes on without what an earlier call has thrown.
  const int before = tests;
  communicators.advance_beside([&] { wait_for(tests, before + 1); });
  return message;
}

TEST(ProgressThread, fails_a_step_as_the_kernel_does_or_else_as_a_communication_does) {
  EXPECT_EQ(thrown_beside(false, false), "");
  EXPECT_EQ(thrown_beside(true, false), "the peer has died");
  EXPECT_EQ(thrown_beside(false, true), "the kernel fails");
  EXPECT_EQ(thrown_beside(true, true), "the kernel fails");
}

}  // namespace
}  // namespace tessera::runtime
