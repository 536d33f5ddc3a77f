#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/comm/flight.h"
#include "tessera/runtime/agreement.h"
#include "tessera/runtime/rank_state.h"
#include "tessera/runtime/worker.h"

namespace tessera::runtime {

/// The failure of a rank, with what ranks did last: those of this process, and of others that share memory with it.
class RankFailure : public Error {
 public:
  RankFailure(const Error& error, std::vector<comm::FlightLog> flights)
      : Error(error), flights_(std::make_shared<const std::vector<comm::FlightLog>>(std::move(flights))) {}
  const std::vector<comm::FlightLog>& flights() const { return *flights_; }

 private:
  std::shared_ptr<const std::vector<comm::FlightLog>> flights_;  // exceptions are copied
};

/// The ranks of this process with their threads, in a world of their own or a world shared with other processes.
class RankTeam {
 public:
  struct Options {
    comm::WorldOptions world;                ///< if they make a world of their own
    std::shared_ptr<comm::World> connected;  ///< the world shared with other processes; null: they make their own
    int threads = 1;                         ///< of each rank's team
    int at_once = 1;                         ///< teams like this one that run at once
    std::chrono::milliseconds grace{0};
    /// See ExecutorOptions.
    std::function<void(const std::string& message, const std::vector<comm::FlightLog>& flights)> abandoned;
    bool spin = true;  ///< while they wait, ranks spin before they yield, if each thread has a core of its own
    /// Whether so many ranks spin on so many cores.
    bool spins(size_t ranks, size_t cores) const;
  };
  /// `failed`: called when ranks have failed, in the world that has ended, before they are connected anew.
  RankTeam(Options options, std::function<void()> failed) : options_(std::move(options)), failed_(std::move(failed)) {}

  /// All ranks are added, in their order, before they are connected.
  void add(std::unique_ptr<RankState> rank);
  void connect();

  /// Ranks, and what is kept for each, are in this order.
  size_t size() const { return ranks_.size(); }
  RankState& operator[](size_t n) { return *ranks_[n]; }
  const RankState& operator[](size_t n) const { return *ranks_[n]; }
  const std::vector<int>& here() const { return here_; }  ///< their numbers
  int threads() const { return options_.threads; }
  comm::World& world() { return *world_; }
  /// Whether all ranks of the world are here.
  bool is_all() const { return here_.size() == static_cast<size_t>(world_->size()); }
  /// Whether rank 0 is here, where outputs are completed.
  bool has_first() const { return here_.front() == 0; }

  /// Call it before these programs run: ranks of several processes join their groups, and wait for each other.
  void join(const RankPrograms& programs);
  /// Drops what ranks keep for programs that nothing runs any more, which are known by their addresses.
  void forget(const RankPrograms& programs);

  /// Runs `task` for the n-th rank of this process, for each n on that rank's thread, and waits for all. The first
  /// failure, by time, ends the world, so that no other rank waits for the one that failed, and is thrown: an Error as
  /// a RankFailure.
  void on_all(const std::function<void(size_t)>& task);
  /// Like on_all(), but the world stays usable: the task returns its error, which is thrown on all ranks. It also
  /// throws if ranks were `given` different data.
  void on_all_in_agreement(const std::function<std::exception_ptr(size_t)>& task, const Given& given);

 private:
  struct Failure;
  bool runs_on_callers() const;
  void wait_for_all(Failure& failure);

  Options options_;
  std::function<void()> failed_;
  std::vector<int> here_;
  std::shared_ptr<comm::World> world_;
  std::vector<std::unique_ptr<RankState>> ranks_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::set<const RankPrograms*> joined_;  // whose groups the ranks have joined in the world
};

}  // namespace tessera::runtime
