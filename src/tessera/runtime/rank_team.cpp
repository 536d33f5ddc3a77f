#include "tessera/runtime/rank_team.h"

#include <omp.h>

#include <cfenv>
#include <mutex>
#include <thread>
#include <utility>

#include "tessera/base/error_kind.h"

namespace tessera::runtime {

namespace {

/// While it lives, the calling thread computes as a worker with one thread does, whatever its caller has set.
class AsWorker {
 public:
  AsWorker() : threads_(omp_get_max_threads()) {
    std::fegetenv(&environment_);
    std::fesetenv(FE_DFL_ENV);
    omp_set_num_threads(1);
  }
  ~AsWorker() {
    omp_set_num_threads(threads_);
    std::fesetenv(&environment_);
  }
  AsWorker(const AsWorker&) = delete;
  AsWorker& operator=(const AsWorker&) = delete;

 private:
  int threads_;
  std::fenv_t environment_;
};

}  // namespace

/// The first failure, by time.
struct RankTeam::Failure {
  std::mutex mutex;
  std::exception_ptr first;
  std::string message;

  void note(const std::exception& error) {
    const std::lock_guard lock(mutex);
    if (first) return;
    first = std::current_exception();
    message = error.what();
  }
  std::string text() {
    const std::lock_guard lock(mutex);
    return message;
  }
};

bool RankTeam::Options::spins(size_t ranks, size_t cores) const {
  return spin && ranks * static_cast<size_t>(threads) * static_cast<size_t>(at_once) <= cores;
}

void RankTeam::add(std::unique_ptr<RankState> rank) {
  here_.push_back(rank->rank());
  ranks_.push_back(std::move(rank));
  workers_.push_back(std::make_unique<Worker>(options_.threads));
}

void RankTeam::connect() {
  comm::WorldOptions own = options_.world;
  own.spin = options_.spins(ranks_.size(), std::thread::hardware_concurrency());
  world_ = options_.connected ? options_.connected : comm::make_local_world(static_cast<int>(ranks_.size()), own);
  for (auto& rank : ranks_) rank->connect(world_.get());
  joined_.clear();
}

void RankTeam::join(const RankPrograms& programs) {
  if (is_all() || joined_.contains(&programs)) return;
  on_all([&](size_t n) { ranks_[n]->communicators().join_groups(programs); });
  joined_.insert(&programs);
}

void RankTeam::forget(const RankPrograms& programs) {
  joined_.erase(&programs);
  on_all([&](size_t n) { ranks_[n]->forget(programs); });
}

// A lone rank of one thread needs no other thread than the caller's, which saves two switches of threads.
bool RankTeam::runs_on_callers() const {
  return ranks_.size() == 1 && is_all() && options_.threads == 1 && ranks_.front()->device().uses_host_memory() &&
         omp_get_level() == 0;
}

void RankTeam::on_all(const std::function<void(size_t)>& task) {
  Failure failure;
  const auto run = [&](size_t n) {
    try {
      task(n);
    } catch (const std::exception& error) {
      ranks_[n]->communicators().flight().give_up();
      failure.note(error);
      world_->abort(here_[n], error.what(), error_kind(error));
      ranks_[n]->queues().settle();
    }
  };
  if (runs_on_callers()) {
    const AsWorker as_worker;
    run(0);
  } else {
    for (size_t n = 0; n < workers_.size(); ++n) workers_[n]->start([&run, n] { run(n); });
    wait_for_all(failure);
  }
  if (!failure.first) return;
  std::vector<comm::FlightLog> flights = comm::logs_of(*world_);
  failed_();
  for (auto& rank : ranks_) rank->forget_values();
  connect();
  try {
    std::rethrow_exception(failure.first);
  } catch (const Error& error) {
    throw RankFailure(error, std::move(flights));
  }
}

void RankTeam::wait_for_all(Failure& failure) {
  constexpr std::chrono::milliseconds kSlice{50};
  std::chrono::milliseconds waited{0};  // since a rank has failed
  bool told = false;
  for (auto& worker : workers_)
    while (!worker->finish_within(kSlice)) {
      const std::string message = failure.text();
      if (message.empty()) continue;
      waited += kSlice;
      if (waited < options_.grace || !options_.abandoned || std::exchange(told, true)) continue;
      options_.abandoned(message, comm::logs_of(*world_));
    }
}

void RankTeam::on_all_in_agreement(const std::function<std::exception_ptr(size_t)>& task, const Given& given) {
  std::vector<std::exception_ptr> errors(ranks_.size());
  on_all([&](size_t n) { errors[n] = agree(ranks_[n]->communicators().everyone(), task(n), given); });
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace tessera::runtime
