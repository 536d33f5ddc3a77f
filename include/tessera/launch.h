#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/error.h"

/// Ranks that are processes: who started them, and how they meet.
namespace tessera {
inline namespace v1 {

/// This process as one rank of several that a launcher started.
struct Launch {
  std::string engine;  ///< one of engines(); it carries the bytes
  int rank = 0;
  int size = 1;  ///< ranks in all; 0: known once they are connected
  /// Among the ranks on this machine, and how many there are. If a rank does not know one of the two (-1, 0), the hosts
  /// of all ranks say both once they are connected.
  int local_rank = -1, local_size = 0;
  std::string rendezvous;  ///< where the ranks meet, in the engine's own words

  /// Reads from the environment to which launch this process belongs (tessera run --spawn, mpirun, srun or torchrun);
  /// nullopt if it was started alone. If the launcher allows several engines, `engine` chooses: one of engines() or
  /// "auto"; "threads" ignores launchers. Throws a user error for an environment that contradicts itself, or the
  /// engine.
  static std::optional<Launch> find(std::string_view engine = "auto");
};

/// A way to carry the bytes between ranks, and whether this machine can use it.
struct EngineInfo {
  std::string name;
  std::string description;
  std::string missing;  ///< why this machine cannot use it, and the fix; empty: it can
};
std::vector<EngineInfo> engines();

struct ConnectOptions {
  std::chrono::milliseconds timeout{60'000};  ///< longest wait of one rank for another before the run is given up
  /// Longest wait for all ranks to join, before the first run; if not set, a minute, or `timeout` if that is longer.
  std::optional<std::chrono::milliseconds> join_timeout;
  bool spin = false;  ///< wait a few microseconds without yielding; only if every rank's threads have their own cores
  /// Ranks of one host meet in shared memory, and the engine connects only the hosts. All ranks must set the same.
  bool share_memory = false;
};

/// This process' connection to all others of a launch, for any number of sessions one after the other. While it lives,
/// a failure on one rank ends the runs of all.
class Connection {
 public:
  /// Meets all other ranks. Throws a user error for an unknown engine, and if ranks have different versions of tessera
  /// or differ in share_memory, or if what their launchers say of ranks on a machine is contradictory; a running error
  /// if a rank does not join in time.
  static std::shared_ptr<Connection> make(const Launch& launch, const ConnectOptions& options = {});
  ~Connection();

  const Launch& launch() const;
  /// Ends the current and all later work of all ranks with this message, as an error of that kind. The first call wins.
  void abort(std::string_view message, ErrorKind kind = ErrorKind::running);
  /// Whether rank 0 knows of a failure that this rank reported or received, so that rank 0 can report it for all; waits
  /// a second for that. If not, rank 0 is dead, hangs, or is busy for a long time.
  bool first_has_heard();
  /// Where in a run this rank waits for others, in words; empty if it does not wait. Any thread may call this.
  std::string waits_at() const;
  /// What this rank was doing, in words, for a process that must end during a run; empty if there is no run. Writes the
  /// rank's flight record to the file ("": none). Any thread may call this.
  std::string last_words(std::string_view why, const std::string& flight_record) const;
  /// Throws a user error on all ranks unless all pass the same `words`; `what` names these words ("the command").
  /// Every rank calls it.
  void require_same(std::string_view what, std::string_view words);
  /// Returns rank 0's value on all ranks. Every rank calls it.
  int64_t from_first(int64_t value);
  /// Returns every rank's value on all ranks, by rank. Every rank calls it.
  std::vector<int64_t> from_all(int64_t value);

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  explicit Connection(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// How to run the current program as the ranks of one machine: processes that share memory.
struct SpawnOptions {
  int ranks = 1;
  std::vector<std::string> arguments;  ///< of the program that runs now, its name first
  /// How long ranks may go on after one has failed, before they are killed.
  std::chrono::milliseconds grace{5'000};
  std::string flight_record;  ///< a file for the ranks' last communications, written when they fail; "": none
  std::vector<int> done{0};   ///< exit codes of ranks that have done their work, so that they end no others
};

/// How the ranks ended.
struct Spawned {
  /// 0 if all ranks returned 0, else the least code that is not 0; after a failure, that of a running error at most.
  int code = 0;
  std::string note;  ///< after a failure while running: a sentence that names the flight record
};

/// Starts the ranks, each of which finds its Launch in the environment, and waits until all have ended. A rank that
/// dies ends the others. No rank outlives this process, however it ends. Throws a running error if rank 0 had no chance
/// to report what went wrong: it died, or ended before another rank failed.
Spawned spawn(const SpawnOptions& options);

/// Ends the ranks of a spawn() in another thread: asks them to end, and kills them after two seconds. Meant for a
/// process that is about to end, since that spawn() does not return.
void end_spawned();

/// Sends a signal to the ranks of a spawn() in another thread. Returns whether there are any.
bool signal_spawned(int signal);

}  // namespace v1
}  // namespace tessera
