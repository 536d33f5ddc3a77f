#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
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
/// Other kinds move `count` elements. `in` == `out` is allowed for all_reduce, reduce and broadcast.
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
  void* stream = nullptr;                ///< of a device's communicator: kernels::KernelArgs::stream; else null
  std::string_view label;                ///< the value's name, for messages
  bool joins = false;  ///< members arrive at their own pace, before the run: its wait has WorldOptions::join_timeout
};

/// A started operation; wait() consumes it.
using Ticket = uint64_t;

/// One rank's membership of one group. All members call the same operations in the same order (send and recv: in an
/// order that pairs up). Only one thread may use it.
///
/// A reduction gives the same bits in every run and on every member: threads and processes add in member order 0, 1, 2,
/// …, libraries (MPI, Gloo) in an order of their own. All sum 16-bit floats in float32 and round once.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int member() const = 0;  ///< this rank's index in the group
  virtual int size() const = 0;

  /// Begins an operation; `in` must stay unchanged and `out` untouched until the wait returns. May wait until all
  /// members have arrived at an earlier operation, the 16th back on threads. So if ranks use two groups in different
  /// orders, neither group may get that far ahead.
  virtual Ticket start(const Operation& operation) = 0;
  /// Returns once this rank's result is in `out` and all readers have released its `in`.
  /// Throws the world's abort reason, or a timeout that names the missing members.
  virtual void wait(Ticket ticket) = 0;
  /// Lets a started operation advance, without waiting, if the backend leaves that to its callers. A rank that computes
  /// meanwhile calls this now and then. True if wait() will not wait for anybody; false says nothing. Throws as wait().
  virtual bool test(Ticket ticket);
  /// Whether the bits of each element of a reduction depend on nothing but the members' elements: neither on its place
  /// in the buffer nor on how many others are with it. Reductions may be joined if so. Members answer alike.
  virtual bool reduces_by_element(const Operation& operation) const = 0;

  /// Ends what is under way, now and later, with an error. For operations that a device runs and that do not hear of
  /// the end of the run by themselves; others do nothing here. Any thread may call it.
  virtual void abandon() {}
  /// What has failed in an operation that a device runs, where its queue does not hear of it (NCCL's asynchronous
  /// errors); null: nothing, or the queue does. Any thread may call it.
  virtual std::exception_ptr failure() const { return nullptr; }

  void run(const Operation& operation) { wait(start(operation)); }
};

struct Flight;

/// How a run has ended.
struct End {
  std::string reason;
  ErrorKind kind = ErrorKind::running;  ///< user: by a user's mistake, on some rank
  int rank = -1;                        ///< the rank that failed; -1: none did, or it is not known
};

/// All ranks of a run, connected by one backend. Each rank lives in one process; a process may hold several.
class World {
 public:
  World();
  virtual ~World();
  virtual int size() const = 0;

  /// The ranks that live in this process, ascending: all, unless the backend says otherwise.
  virtual std::vector<int> local_ranks() const;

  /// At least `bytes` uninitialized bytes for buffers of local rank `rank`, aligned to 64 bytes. Operations take any
  /// memory, but a backend may need no copies of buffers in this memory. It lives until the last owner releases it,
  /// even beyond the world. Throws a running error naming `what` if there is no memory.
  virtual std::shared_ptr<std::byte[]> allocate(int rank, size_t bytes, const char* what);

  /// Local rank `rank`'s membership of the group `members` (world ranks, in member order; `rank` is one of them). Every
  /// member of the group must call this. A group of one is legal and only copies.
  virtual std::unique_ptr<Communicator> join(int rank, std::span<const int> members) = 0;

  /// Whether operations advance only in Communicator::test and wait, so that a rank that computes meanwhile should test
  /// every few milliseconds.
  virtual bool advances_by_tests() const { return false; }

  /// Ends every current and later wait on all ranks with an error of this message and `kind`. The first call wins. A
  /// timeout or a disagreement does the same. Buffers must outlive all ranks' last wait, since a reader may be in the
  /// middle of one. Buffers of operations whose wait did not return must outlive the world, because its library may
  /// still use them.
  virtual void abort(int rank, std::string_view message, ErrorKind kind = ErrorKind::running) = 0;

  /// How the run has ended, as far as this process knows; its ranks may not know yet. Nullopt while the run goes on, or
  /// if the backend cannot say. Any thread may call this.
  virtual std::optional<End> end() const { return std::nullopt; }

  /// Whether rank 0 has heard that the run has ended, so that it can report the end; waits at most `most` for that.
  /// Another rank may ask this after an abort.
  virtual bool first_has_heard(std::chrono::milliseconds most);

  /// A rank's flight record (flight.h), which the code that runs the rank writes. Null for ranks in other processes,
  /// unless ranks share memory. Lives as long as the world.
  virtual Flight* flight(int rank);

 private:
  struct Flights;
  std::unique_ptr<Flights> flights_;  // of local ranks, if the backend keeps none
};

struct WorldOptions {
  std::chrono::milliseconds timeout{60'000};       ///< longest wait for another rank before the run is given up
  std::chrono::milliseconds join_timeout{60'000};  ///< longest wait while ranks join, which start at their own pace
  bool spin = false;  ///< wait a few microseconds without yielding; only if every rank's threads have their own cores
};

/// Ranks as threads of this process. Members read each other's buffers directly.
std::unique_ptr<World> make_local_world(int size, const WorldOptions& options = {});

/// Creates the memory that ranks in processes of this machine share: a file without a name, which vanishes with the
/// last process that has it open or mapped. It is closed on exec, unless the caller changes that. Throws a running
/// error if the system refuses it.
int create_shared_memory(int size);

/// This process as rank `rank` of those that share `memory`, which may be closed afterwards. Members read each other's
/// buffers directly if the world allocated them, and copies of other buffers. A process has one such world at a time.
/// `rank` -1: this process is not a rank, but may end their run.
std::unique_ptr<World> make_shared_world(int memory, int rank, const WorldOptions& options = {});

}  // namespace tessera::comm
