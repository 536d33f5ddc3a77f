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

/// This process as one rank of several, as a launcher made it.
struct Launch {
  std::string engine;  ///< what carries the bytes: one of engines()
  int rank = 0;
  int size = 1;            ///< ranks in all; 0: known once they are connected
  int local_rank = 0;      ///< among the ranks on this machine
  int local_size = 1;      ///< ranks on this machine
  std::string rendezvous;  ///< where the ranks meet, in the engine's own words

  /// The launch that this process is part of, as its environment says (that of tessera run --spawn, mpirun, srun or
  /// torchrun); none where it was started alone. `engine`, one of engines() or "auto", says what is to carry the bytes
  /// where a launcher leaves a choice; "threads" ignores launchers. Throws a user error for an environment that
  /// contradicts itself, or the engine.
  static std::optional<Launch> find(std::string_view engine = "auto");
};

/// What can carry the bytes between ranks, and whether it can here.
struct EngineInfo {
  std::string name;
  std::string description;
  std::string missing;  ///< why it cannot be used on this machine, and how to mend that; empty: it can
};
std::vector<EngineInfo> engines();

struct ConnectOptions {
  std::chrono::milliseconds timeout{60'000};  ///< longest wait of one rank for another before the run is given up
  /// Longest wait for all ranks to come, before the first run; without one a minute, or `timeout` if that is longer.
  std::optional<std::chrono::milliseconds> join_timeout;
  bool spin = false;  ///< wait a few microseconds without yielding; where every rank's threads have their own cores
  /// Ranks of one host meet in shared memory; the engine connects hosts only. All ranks say the same.
  bool share_memory = false;
};

/// This process' connection to all others of a launch, for any number of sessions one after the other. While it lives,
/// a failure on one rank ends the runs of all.
class Connection {
 public:
  /// Meets the other ranks, all of them. Throws a user error for an engine that there is not, and if they have another
  /// version of tessera, or do not all share memory; a running error if they do not come in time.
  static std::shared_ptr<Connection> make(const Launch& launch, const ConnectOptions& options = {});
  ~Connection();

  const Launch& launch() const;
  /// Ends what all ranks do, now and later, with this message, and an error of that kind. The first call wins.
  void abort(std::string_view message, ErrorKind kind = ErrorKind::running);
  /// Whether rank 0 has heard of a failure that this rank has told, or was told of, so that it can speak for all; waits
  /// a second for that. Else it is dead, or hangs, or is at work for long.
  bool first_has_heard();
  /// What this rank was doing, in words, for a process that is told to end in the middle of a run; what it did last is
  /// written to the file ("": to none). Empty: there is no run. From any thread.
  std::string last_words(std::string_view why, const std::string& flight_record) const;
  /// Throws a user error, on all ranks, unless all say the same of what they are given ("the command", "run"); every
  /// rank calls it.
  void require_same(std::string_view what, std::string_view words);
  /// Rank 0's value, on all; every rank calls it.
  int64_t from_first(int64_t value);

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  explicit Connection(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// A program to run as the ranks of one machine, processes that share memory.
struct SpawnOptions {
  int ranks = 1;
  std::vector<std::string> arguments;  ///< the program's name first; the program is the one that runs now
  /// How long ranks may go on after one has failed, before they are killed.
  std::chrono::milliseconds grace{5'000};
  std::string flight_record;  ///< a file for what ranks did last, written when they fail; "": none
};

/// What became of the ranks.
struct Spawned {
  int code = 0;      ///< 0 if all returned that, else the least of what others returned
  std::string note;  ///< of a failure while running: where the flight record is, in words
};

/// Starts the ranks, each of which finds its Launch in the environment, and waits until all have ended. A rank that
/// dies ends the others. No rank outlives this process, however it ends. Throws a running error where rank 0 has had no
/// chance to say what went wrong: it died, or was done before another rank failed.
Spawned spawn(const SpawnOptions& options);

/// Ends the ranks of a spawn() in another thread: asks them to, and after two seconds kills them. For a process that is
/// about to end: that spawn() does not return.
void end_spawned();

}  // namespace v1
}  // namespace tessera
