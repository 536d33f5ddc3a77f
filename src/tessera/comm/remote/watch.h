#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/comm/communicator.h"

namespace tessera::comm {

/// A message from one rank to all others, apart from the operations.
struct Notice {
  int from = 0;
  std::string text;
};

/// The notice that the run has ended, sent on a rank's behalf. The sender is the rank at fault; -1: none is.
std::string end_notice(std::string_view reason, ErrorKind kind = ErrorKind::running);
/// The same for a rank that has died, and so cannot send it.
std::string death_notice(std::string_view reason);
bool is_end_notice(std::string_view text);

/// A rank's channel for notices to all others of its world. Called under the watch's lock.
class Notices {
 public:
  virtual ~Notices() = default;
  /// Sends to all other ranks, without waiting for them. False if nobody can receive notices any more.
  virtual bool tell(const std::string& text) = 0;
  virtual std::optional<Notice> next() = 0;  ///< the next one received, in each sender's order; never waits
  /// A received notice that the run has ended, if there is one; next() still returns it.
  virtual std::optional<Notice> end() = 0;

  virtual int carrier() const { return -1; }  ///< the rank that passes on the others' notices; -1: none
  /// Asks the carrier for a sign of life.
  virtual void ask_carrier() {}
  /// The carrier's answer to the last question: the ranks that have left regularly; nullopt if it has not answered.
  /// Without a carrier, nobody is known to have left.
  virtual std::optional<std::vector<int>> carrier_answer() { return std::vector<int>(); }
};

/// Where a rank waits, for itself and for the others' messages.
struct Place {
  std::string what;          ///< "all_reduce sum float32[8] 'y'"
  std::string group;         ///< "{0,1,2}"
  uint64_t number = 0;       ///< of the collective in its group, or of the message from its sender, from 1
  bool message = false;      ///< a message; otherwise all awaited ranks must come to this number
  std::vector<int> awaited;  ///< world ranks, without this one
};

/// Ends the waits of a world whose ranks share no memory, and finds out why a wait lasts too long.
///
/// A wait that reaches its deadline asks all ranks where they are. A rank that waits, too, answers with its place; one
/// that computes, hangs or is gone says nothing. After a grace the asker gives up, and its reason names who has arrived
/// at the operation, who waits elsewhere, and who says nothing. For example, rank 0 awaits rank 1, which awaits rank 2,
/// which hangs: rank 0 reports "missing: rank 1; …; rank 1 waits at …; rank 2 says nothing".
///
/// A rank that gives up, or that is told to abort, tells its reason to all ranks, and every wait there throws it. If
/// the reason is that a rank has failed, the waiting ranks first tell each other their places, so that each can add who
/// had arrived at its own: "rank 1 has died: …; rank 0 waited at all_reduce … (#2 of group {0,1,2}): missing: rank 1;
/// arrived: …".
class Watch {
 public:
  /// A wait lasts at most `timeout`; a wait for members to join a group, at most `join_timeout`.
  Watch(int rank, int size, std::chrono::milliseconds timeout, std::chrono::milliseconds join_timeout,
        Notices& notices);

  /// Ends the run on all ranks for this reason, which this rank gives. The first reason stays.
  void abort(std::string_view message, ErrorKind kind);
  /// Throws a running error with the reason if the run has ended on some rank.
  void check_alive();
  /// The same for a rank that is about to wait at `place`, or that calls this often: looks for notices at most once per
  /// millisecond.
  void check_alive(const std::function<Place()>& place);
  /// Whether the run has ended, as far as this rank has been told.
  bool ended();
  /// How the run has ended, as far as this process has been told. This does not count as this rank hearing of it.
  std::optional<End> end();
  /// The ranks that have finished and left, according to the carrier; waits at most `most` for its answer.
  std::vector<int> left(std::chrono::milliseconds most);

  /// Whether rank 0, which speaks for all, has heard that the run has ended; waits at most `most` for its confirmation.
  /// A rank that has heard of the end may ask this.
  bool first_has_heard(std::chrono::milliseconds most);

  /// Calls `step`, which advances the operation and may sleep for some milliseconds, until it returns true. If the run
  /// ends, throws the reason. After the timeout (the join timeout if `joins`), throws a running error that names the
  /// ranks at fault.
  void wait_until(const std::function<bool()>& step, const std::function<Place()>& place, bool joins = false);
  /// Waits until all members have arrived to join a group; `step` is false until then.
  void wait_for_members(std::span<const int> members, const std::function<bool()>& step);

 private:
  void wait_until(const std::function<bool()>& step, const std::function<Place()>& place,
                  std::chrono::milliseconds most);
  void read_notices();
  void take(const Notice& notice);
  bool has_come(int rank, const Place& place) const;
  std::string arrivals(const Place& place) const;
  std::string verdict(const Place& place, std::chrono::milliseconds waited) const;
  std::string silence(const std::vector<int>& silent) const;
  [[noreturn]] void throw_end(const Place& place);

  const int rank_;
  const std::chrono::milliseconds timeout_, join_timeout_;
  std::chrono::steady_clock::time_point looked_;  // for notices, last
  std::mutex mutex_;
  Notices& notices_;
  std::string reason_;  // why the run has ended; empty: it has not
  ErrorKind kind_ = ErrorKind::running;
  bool explained_ = false;  // the reason says who has arrived, or need not
  int failed_ = -1;         // the rank that is the reason, if it is known
  bool first_heard_ = false;
  uint64_t questions_ = 0;                    // asked by others so far
  std::vector<std::optional<Place>> places_;  // by rank: where it said it waits
};

}  // namespace tessera::comm
