#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

namespace tessera::comm {

/// Interrupts long waits, so that they can look for notices: Gloo's own deadlines close the connections, its
/// interruptions do not. The alarm calls the function that is set, at regular intervals. If it is set often, setting it
/// wakes no thread.
class Alarm {
 public:
  explicit Alarm(std::chrono::milliseconds period) : period_(period), thread_([this] { ring(); }) {}
  ~Alarm();

  /// Calls `interrupt` again and again while it lives.
  class Set {
   public:
    Set(Alarm& alarm, std::function<void()> interrupt);
    ~Set();

   private:
    Alarm& alarm_;
    std::list<std::function<void()>>::iterator place_;
  };

 private:
  void ring();

  const std::chrono::milliseconds period_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<std::function<void()>> interrupts_;
  bool set_ = false;     // since the last ring
  bool asleep_ = false;  // until it is set
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tessera::comm
