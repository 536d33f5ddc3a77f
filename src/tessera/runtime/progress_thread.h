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

  void lend();
  /// Waits for a call of `advance` that has begun. Returns what one has thrown; null: nothing.
  std::exception_ptr take_back() noexcept;

 private:
  void work();

  const std::function<void()> advance_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_lent_ = false, ends_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace tessera::runtime
