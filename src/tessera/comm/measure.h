#pragma once

#include <functional>
#include <memory>
#include <span>

#include "tessera/comm/communicator.h"

namespace tessera::comm {

struct MeasureOptions {
  double seconds = 0.1;  ///< of measuring at each point, at least
  int repeats = 5;       ///< batches of which the median is taken, at least
};

/// Times collectives, as one rank of a world: every rank has a meter of its own in a thread of its own, and all make
/// the same calls in the same order. What is asked of all groups of ranks goes on in all of them at once.
class Meter {
 public:
  /// `largest`: bytes of the largest tensor to come.
  Meter(World& world, int rank, int64_t largest, const MeasureOptions& options);

  /// Seconds of one collective of float32 among `members`, of which this rank is one: the median over batches of the
  /// slowest rank of the world, operations of a batch following each other at once. `bytes` is the whole tensor's, as
  /// nccl-tests counts: of the output of all_gather and gather, else of a member's input. Members' blocks differ by one
  /// element at most. Kinds: all but send and recv; permute goes to the next member.
  double time(Kind kind, std::span<const int> members, int64_t bytes);

  /// Seconds in which each rank copies `bytes` to memory of its own, all ranks at once.
  double time_of_copy(int64_t bytes);

 private:
  double slowest_median(const std::function<void()>& body);
  double slowest(double seconds);
  void meet();

  World& world_;
  int rank_;
  MeasureOptions options_;
  std::unique_ptr<Communicator> all_;
  std::shared_ptr<std::byte[]> in_, out_;
};

}  // namespace tessera::comm
