#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/mesh/mesh.h"
#include "tessera/mesh/topology.h"

/// Measures how fast ranks communicate.
namespace tessera {
inline namespace v1 {

class Connection;

struct MeasureOptions {
  /// "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter", "permute",
  /// "barrier"; empty: all of them. Also "send": a message from a group's last member to its first.
  std::vector<std::string> kinds;
  int64_t least = int64_t{1} << 10,
          most = int64_t{256} << 20;  ///< bytes of the smallest and largest tensor; each is 4 times the one before
  double seconds = 0.1;               ///< at each point, at least
  /// Sizes of a collective stop growing when the next would take longer than this many seconds, since a slow link shows
  /// its bandwidth long before the largest size.
  double longest = 0.5;
  /// Whether each rank writes its operand before each collective, as programs do: then no other rank has it in its
  /// caches, where ranks share memory. The time of writing is taken off.
  bool writes = false;
  /// Ranks per host, numbered host by host; an axis that crosses hosts is cut into sub-axes there. 0: all ranks, or the
  /// number that the connection's launch states.
  int64_t per_host = 0;
  std::shared_ptr<Connection> connection;     ///< null: all ranks are threads of this process
  std::chrono::milliseconds timeout{60'000};  ///< longest wait of one rank for another, where there is no connection
  /// Makes a kernel, to find how much it and transfers slow each other down; each rank's thread calls it. Null: nothing
  /// is computed.
  std::function<std::function<void()>()> kernel;
  /// Called with the name of the next measurement ("all_reduce over tp") by a thread of the first rank of this process.
  std::function<void(const std::string& what)> begins;
};

/// One point: a collective of float32 in all groups over some axes at once.
struct CollectiveTime {
  /// As in MeasureOptions; or "all_reduce by levels", over an axis that crosses hosts, inside hosts and between them;
  /// or "copy": each rank copies `bytes` in its own memory.
  std::string kind;
  std::vector<std::string> axes;  ///< members of a group differ along these; none for "copy"
  int64_t members = 1;            ///< of a group
  int64_t bytes = 0;              ///< of the whole tensor, as nccl-tests counts it; 0 for barrier
  double seconds = 0;             ///< of the slowest rank: the median over batches of the fastest round
  double scatter = 0;             ///< how much longer the slowest round took, as a share of `seconds`
  double bandwidth = 0;           ///< bytes/s
  double bus_bandwidth = 0;       ///< bytes/s times the factor of nccl-tests: 2(n-1)/n for all_reduce, …
  /// Seconds in which all ranks copy what they receive: a lower bound by memory bandwidth if ranks share a machine. In
  /// reduce and gather one rank in n receives all, in broadcast all but one. 0 for barrier. Copies are timed before and
  /// after the collectives of each group; the fastest count.
  double floor = 0;
};

/// The link fitted to the times over one axis, or over a sub-axis between hosts or inside them.
struct LinkFit {
  std::string axes;
  LinkLevel level;     ///< its bandwidth is 0 if times did not grow with the bytes
  double error = 0;    ///< the root of the mean square of relative errors
  double scatter = 0;  ///< the root of the mean square of the scatter of the fitted times
};

struct CollectiveTimes {
  /// If a kernel was given: how many times as long kernels take beside transfers, and transfers beside kernels, on the
  /// rank that is worst off. 1 where threads share cores, since then nobody runs beside them.
  double slows_computation = 1, slowed_by_computation = 1;
  std::vector<CollectiveTime> times;  ///< groups: each axis, its sub-axes if it is cut, all axes together if several
  std::vector<LinkFit> fits;
  /// The links of all axes of more than one rank. Throws a user error if a bandwidth could not be fitted.
  Topology topology() const;
};

/// Every rank of a connection makes this call, and gets the same answer. Throws a user error for an unknown kind, a
/// mesh that is not the connection's, hosts that do not divide an axis, and buffers that memory cannot hold.
CollectiveTimes measure_collectives(const Mesh& mesh, const MeasureOptions& options = {});

}  // namespace v1
}  // namespace tessera
