#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tessera/comm/flight.h"

/// Failures on purpose, to test how a run ends.
namespace tessera::comm {

/// A failure that happens when a rank begins its n-th communication of the program, from 1, since it was connected.
struct Fault {
  enum class Act : uint8_t {
    die,    ///< the process is killed
    leave,  ///< the process ends with exit code 9 and without a farewell ("exit")
    fail,   ///< the rank throws ("throw")
    stall,  ///< the rank does nothing more, for ever
    stop,   ///< the process is stopped, as by SIGSTOP
  };
  int rank = 0;
  int64_t operation = 1;
  Act act = Act::die;
  std::chrono::milliseconds after{0};  ///< the delay, in which the others may arrive

  /// Reads "rank=1,operation=5,do=stall", optionally with ",after=200", as in the variable TESSERA_FAULT. Throws a user
  /// error for anything else.
  static Fault parse(std::string_view text);
  /// The fault in the environment, if it is meant for rank `rank` of `ranks`. A user error if it is meant for none of
  /// the ranks.
  static std::optional<Fault> of(int rank, int ranks);
};

/// Counts the communications that a rank's communicators begin, in any thread, and triggers the fault at the n-th.
class FaultCounter {
 public:
  /// `flight` says in which operator rank `rank` of `ranks` is.
  FaultCounter(int rank, int ranks, const Flight& flight)
      : rank_(rank), flight_(flight), fault_(Fault::of(rank, ranks)) {}
  void count() {
    if (fault_ && ++begun_ == fault_->operation) strike();
  }

 private:
  void strike();

  int rank_;
  const Flight& flight_;
  std::optional<Fault> fault_;
  std::atomic<int64_t> begun_ = 0;
};

}  // namespace tessera::comm
