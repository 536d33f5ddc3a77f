#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/error.h"
#include "tessera/ir/collective.h"
#include "tessera/ir/dtype.h"
#include "tessera/ir/reduction.h"

namespace tessera::comm {

using Kind = Collective;
using tessera::name_of;

/// One communication as one member of a group states it. Buffers are dense and row-major.
///
/// Blocked kinds see a tensor as [outer, Σ counts, inner]: member j's block is [outer, counts[j], inner]. Counts may
/// differ and may be zero; every member passes the same `outer`, `counts` and `inner`.
///   all_gather      in [outer, counts[me], inner]   out [outer, Σ counts, inner]
///   reduce_scatter  in [outer, Σ counts, inner]     out [outer, counts[me], inner]
///   gather/scatter  like all_gather/reduce_scatter without a reduction; `out`/`in` whole on the root only
///   all_to_all      in: blocks for each member one after the other, send_counts[j]·inner elements to member j;
///                   out: blocks from each member one after the other, recv_counts[j]·inner elements from member j
/// Others move `count` elements. `in` == `out` is allowed for all_reduce, reduce and broadcast.
struct Operation {
  Kind kind = Kind::barrier;
  DType dtype = DType::float32;
  Reduction reduction = Reduction::sum;
  const void* in = nullptr;
  void* out = nullptr;
  int64_t count = 0;                     ///< elements, of kinds without blocks
  int64_t outer = 1;                     ///< of blocked kinds
  int64_t inner = 1;                     ///< of blocked kinds, elements
  std::span<const int64_t> counts;       ///< one per member; of all_to_all: send_counts
  std::span<const int64_t> recv_counts;  ///< of all_to_all
  int root = 0;                          ///< member index, of broadcast, reduce, gather, scatter
  int to = -1;                           ///< member index, of send and permute; -1: to nobody
  int from = -1;                         ///< member index, of recv and permute; -1: from nobody (out is zero-filled)
  std::string_view label;                ///< what is moved, for messages
  bool joins =
      false;  ///< members come to it at their own pace, before they run: its wait has WorldOptions::join_timeout
};

/// A started operation. Consumed by wait().
using Ticket = uint64_t;

/// One rank's membership of one group. All members call the same operations in the same order (send and recv: in an
/// order that pairs up). Used from one thread only.
///
/// Every run and every member gets the same bits of a reduction: threads and processes add in member order 0, 1, 2, …,
/// libraries (MPI, Gloo) in an order of their own. 16-bit floats are summed in float32 and rounded once.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int member() const = 0;  ///< this rank's index in the group
  virtual int size() const = 0;

  /// Begins an operation; `in` must stay unchanged and `out` untouched until the wait returns. May wait until all
  /// members have come to an earlier one, the 16th back on threads: of two groups that ranks use in different orders,
  /// none may be that far ahead.
  virtual Ticket start(const Operation& operation) = 0;
  /// Returns once this rank's result is in `out` and all readers have released its `in`.
  /// Throws the world's abort reason, or a timeout that names the members who have not come.
  virtual void wait(Ticket ticket) = 0;
  /// Lets a started operation advance where the backend leaves that to its callers, without waiting: to be called now
  /// and then by who computes meanwhile. True if wait() will not wait for anybody; false says nothing. Throws like it.
  virtual bool test(Ticket ticket);

  void run(const Operation& operation) { wait(start(operation)); }
};

struct Flight;

/// How a run has ended.
struct End {
  std::string reason;
  ErrorKind kind = ErrorKind::running;  ///< user: by a mistake in what was asked, on some rank
  int rank = -1;                        ///< that failed; -1: none did, or it is not known
};

/// All ranks of a run, as one backend connects them. Each rank lives in one process; a process may hold several.
class World {
 public:
  World();
  virtual ~World();
  virtual int size() const = 0;

  /// The ranks that live in this process, ascending: all, unless the backend says otherwise.
  virtual std::vector<int> local_ranks() const;

  /// At least `bytes` bytes for buffers of local rank `rank`, 64-byte aligned, their contents anything. Operations take
  /// any memory; a backend may save copies of what lies in this. Lives until the last owner lets go, whatever becomes
  /// of the world. Throws a running error naming `what` if there is none.
  virtual std::shared_ptr<std::byte[]> allocate(int rank, size_t bytes, const char* what);

  /// Local rank `rank`'s membership of the group `members` (world ranks, in member order; `rank` is one of them). Every
  /// member of the group asks for it. A group of one is legal and moves nothing but copies.
  virtual std::unique_ptr<Communicator> join(int rank, std::span<const int> members) = 0;

  /// Whether operations advance in Communicator::test and wait only, so that who computes meanwhile had better test
  /// every few milliseconds.
  virtual bool advances_by_tests() const { return false; }

  /// Ends every wait, now and later, on all ranks with an error of this message. The first call wins. A timeout or a
  /// disagreement does the same. Buffers must outlive all ranks' last wait: a reader may be in the middle of one. Those
  /// of operations that were not waited for to their end must outlive the world, whose library may go on with them.
  /// `kind` is that of the errors which they throw.
  virtual void abort(int rank, std::string_view message, ErrorKind kind = ErrorKind::running) = 0;

  /// How the run has ended, as this process has been told, though its ranks may not have heard of it; nothing while it
  /// has not, or where the backend cannot say. From any thread.
  virtual std::optional<End> end() const { return std::nullopt; }

  /// Whether rank 0 has heard that the run has ended, so that it can say so; waits for it so long. To be asked after
  /// an abort, by another rank.
  virtual bool first_has_heard(std::chrono::milliseconds most);

  /// A rank's notes of what it does (flight.h), which whoever runs it writes. Of ranks in other processes: null, unless
  /// ranks share memory. Lives as long as the world.
  virtual Flight* flight(int rank);

 private:
  struct Flights;
  std::unique_ptr<Flights> flights_;  // of local ranks, where the backend keeps none
};

struct WorldOptions {
  std::chrono::milliseconds timeout{60'000};       ///< longest wait for another rank before the run is given up
  std::chrono::milliseconds join_timeout{60'000};  ///< the same of ranks that come together, which start at their pace
  bool spin = false;  ///< wait a few microseconds without yielding; where every rank's threads have their own cores
};

/// Ranks as threads of this process. Members read each other's buffers directly.
std::unique_ptr<World> make_local_world(int size, const WorldOptions& options = {});

/// What ranks share that are processes of this machine: a file that has no name, and vanishes with the last process
/// that has it open or mapped. Closed on exec, unless that is changed. Throws a running error if there can be none.
int create_shared_memory(int size);

/// This process as rank `rank` of those that share `memory`, which may be closed then. Members read each other's
/// buffers directly where they are allocated by the world, and copies of others. One such world at a time in a process.
/// `rank` -1: none of the ranks, but may end their run.
std::unique_ptr<World> make_shared_world(int memory, int rank, const WorldOptions& options = {});

}  // namespace tessera::comm
