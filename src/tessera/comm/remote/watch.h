#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::comm {

/// What one rank tells all others beside the operations.
struct Notice {
  int from = 0;
  std::string text;
};

/// The notice that the run has ended, for whoever learns of it on a rank's behalf.
std::string end_notice(std::string_view reason);
bool is_end_notice(std::string_view text);

/// A rank's way to tell all others of its world something. Called under the watch's lock.
class Notices {
 public:
  virtual ~Notices() = default;
  virtual void tell(const std::string& text) = 0;  ///< to all other ranks, without waiting for them
  virtual std::optional<Notice> next() = 0;        ///< what has come, in each sender's order; never waits
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
/// that computes, hangs or is gone says nothing. After a grace the asker gives up, and its reason names who has come to
/// the operation, who waits elsewhere, and who says nothing. For example, rank 0 awaits rank 1, which awaits rank 2,
/// which hangs: rank 0 reports "not come: rank 1; …; rank 1 waits at …; rank 2 says nothing".
///
/// A rank that gives up, or that is told to abort, tells its reason to all; every wait there throws it.
class Watch {
 public:
  Watch(int rank, int size, std::chrono::milliseconds timeout, Notices& notices);

  /// Ends the run on all ranks for this reason, which this rank gives. The first reason stays.
  void abort(std::string_view message);
  /// Throws a running error with the reason if the run has ended on some rank.
  void check_alive();
  bool ended();
  /// Why the run has ended, as far as this rank has heard; empty: it has not.
  std::string reason();

  /// Calls `step` until it returns true: it does what can be done, and may sleep for some milliseconds. Throws the
  /// reason if the run ends, or after the timeout a running error that names the ranks at fault.
  void wait_until(const std::function<bool()>& step, const std::function<Place()>& place);

 private:
  void read_notices();
  void take(const Notice& notice);
  void tell_place(char kind, const Place& place);
  std::string verdict(const Place& place) const;

  const int rank_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  Notices& notices_;
  std::string reason_;                        // why the run has ended; empty: it has not
  uint64_t questions_ = 0;                    // asked by others so far
  std::vector<std::optional<Place>> places_;  // by rank: where it said it waits
};

}  // namespace tessera::comm
