#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/comm/communicator.h"

/// The flight record: what ranks did last, to explain why a run has ended.
namespace tessera::comm {

/// One communication of one rank. Times are nanoseconds of the machine's steady clock; 0: not yet.
struct FlightEntry {
  uint64_t number = 0;  ///< of the collective in its group, or of the message among its sends or recvs, from 1
  Kind kind = Kind::barrier;
  DType dtype = DType::undefined;
  uint64_t bytes = 0;                             ///< that the rank sends, or receives if it sends none
  int64_t started = 0, waited = 0, finished = 0;  ///< finished < waited: it ended while the rank computed
  std::array<char, 48> value{};                   ///< the value's name; texts end with 0, and longer ones are cut
  std::array<char, 24> axes{};                    ///< of the mesh, "dp,tp"; empty: not a communication of the program
  std::array<char, 48> group{};                   ///< "{0,2}"
};

/// A rank's own notes, which only that rank writes. It is plain memory without pointers of its own, so that other
/// processes can read it in shared memory after the rank has died.
struct Flight {
  static constexpr size_t kEntries = 64;

  std::atomic_flag writing;        ///< one of several threads of the rank writes
  std::atomic<uint64_t> begun{0};  ///< communications so far; number n, from 0, is in entry n modulo kEntries
  std::array<FlightEntry, kEntries> entries;
  /// The operator that the rank is in, in memory of World::allocate, ended by 0; null: none.
  std::atomic<const char*> step{nullptr};
  std::array<char, 128> failed_in{};  ///< the operator that the rank was in when it gave up

  /// The rank gives up; the text at `step` may go away afterwards. A second call keeps what the first has noted.
  void give_up();
};

/// A copy of a flight.
struct FlightLog {
  int rank = 0;
  std::string step;     ///< the operator in which the rank is or failed, "MatMul 'h.3'"; empty: none
  uint64_t before = 0;  ///< communications before the first entry
  std::vector<FlightEntry> entries;
};
FlightLog log_of(int rank, const Flight& flight);
/// The logs of all ranks whose flights this process can read.
std::vector<FlightLog> logs_of(World& world);
/// The operator that the rank is in; empty: none.
std::string step_of(const Flight& flight);

/// Where a rank is, "in AllReduce 'y', waiting for all_reduce 'y' (#2 of group {0,1,2})", or "in MatMul 'z', with
/// all_reduce … under way"; empty: in no operator.
std::string place_of(const FlightLog& log);
/// Whether the rank waits for a communication.
bool is_waiting(const FlightLog& log);
/// Who has arrived at the first collective that some rank waits for (or else has begun) and that others have not begun:
/// "all_reduce 'y' (#2 of group {0,1,2}): missing: rank 1; arrived: ranks 0,2". Empty if there is none, or if the text
/// of its group is too long.
std::string arrivals_of(const std::vector<FlightLog>& logs);

int64_t steady_nanoseconds();

/// A communicator that notes its operations on `flight`. `threads`: the rank's communicators are used by several
/// threads (each by one of them), as by queues of a device.
std::unique_ptr<Communicator> recorded(std::unique_ptr<Communicator> communicator, Flight& flight,
                                       std::string_view axes, std::span<const int> members, bool threads = false);

}  // namespace tessera::comm
