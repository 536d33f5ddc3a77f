#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace tessera::runtime {

/// Lets communications advance while their rank's own thread is inside a long kernel, where they move bytes only when
/// asked. The kernel need not know.
///
///     the rank's thread   lend | kernel …………………………………………………………… | take back
///     this thread                   pause, advance, pause, advance, …
///
/// Invariant: the right to use the rank's communicators belongs to one thread at a time, to this one only between
/// lend() and take_back(). A mutex hands it over.
class ProgressThread {
 public:
  /// `advance` asks once. The thread begins with the first lend().
  explicit ProgressThread(std::function<void()> advance) : advance_(std::move(advance)) {}
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;

  /// Does nothing if the system gives no thread: then communications wait for the end of the kernel.
  void lend();
  /// Waits for a call of `advance` that has begun: one test of each communication under way, which takes microseconds,
  /// or as long as a communicator's sum of what has arrived. Returns what a call has thrown; null: nothing.
  std::exception_ptr take_back() noexcept;

 private:
  bool begins();
  void work();

  const std::function<void()> advance_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_lent_ = false, ends_ = false;
  bool idles_ = false;  // the thread waits until it is lent the communicators
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace tessera::runtime
