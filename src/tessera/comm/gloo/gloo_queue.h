#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "tessera/comm/gloo/gloo_collective.h"

namespace tessera::comm {

/// Runs a group's collectives in a thread, in the order in which they were started, because Gloo's calls return only
/// when the collective has ended.
class GlooQueue {
 public:
  /// A collective that has been started.
  struct Job {
    Staged* staged;
    uint64_t number;
    bool done = false;
    std::exception_ptr failure;
  };

  /// `context`: null in a group of one.
  explicit GlooQueue(std::shared_ptr<GlooContext> context);
  /// Interrupts the collectives under way. If Gloo does not return (it may lose a send whose connection has just
  /// closed), the thread is left behind, with everything that it uses.
  ~GlooQueue();

  /// The staged operation must live until the job is done, or until the process ends.
  std::shared_ptr<Job> add(Staged& staged, uint64_t number);
  /// Whether the job ends within `most`. Rethrows Gloo's exception.
  bool wait(const Job& job, std::chrono::milliseconds most);
  bool is_done(const Job& job);

 private:
  struct Shared {
    std::shared_ptr<GlooContext> context;
    std::mutex mutex;
    std::condition_variable started, ended;
    std::deque<std::shared_ptr<Job>> jobs;
    bool stop = false, stopped = false;
  };
  static void work(Shared& shared);

  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace tessera::comm
