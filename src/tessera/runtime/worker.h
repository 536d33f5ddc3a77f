#pragma once

#include <omp.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace tessera::runtime {

/// One thread that runs jobs in order, with an OpenMP team of its own.
class Worker {
 public:
  explicit Worker(int threads) : thread_([this, threads] { loop(threads); }) {}
  ~Worker() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void start(std::function<void()> task) {
    {
      std::lock_guard lock(mutex_);
      task_ = std::move(task);
      busy_ = true;
    }
    changed_.notify_all();
  }

  /// Waits for the started jobs; false if they have not ended by then.
  bool finish_within(std::chrono::milliseconds longest) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, longest, [this] { return !busy_; });
  }

 private:
  void loop(int threads) {
    omp_set_num_threads(threads);
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stop_ || busy_; });
      if (stop_) return;
      auto task = std::move(task_);
      lock.unlock();
      task();
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> task_;
  bool busy_ = false, stop_ = false;
  std::thread thread_;
};

}  // namespace tessera::runtime
