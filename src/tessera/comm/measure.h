#pragma once

#include <functional>
#include <memory>
#include <span>

#include "tessera/comm/batches.h"
#include "tessera/comm/communicator.h"

namespace tessera::comm {

/// How many times as long computation takes beside communication, and communication beside computation; at least 1.
struct Slowdown {
  double computation = 1, communication = 1;
};

/// Times collectives, as one rank of a world: every rank has a meter of its own in a thread of its own, and all make
/// the same calls in the same order. All groups of ranks are measured at once.
class Meter {
 public:
  /// `largest`: bytes of the largest tensor to come. `writes`: each rank writes its operand before each collective, as
  /// the kernels of programs do, so that only its own cache has it; the time of writing alone is taken off.
  Meter(World& world, int rank, int64_t largest, const TimingOptions& options, bool writes = false);

  /// The time of one collective of float32 among `members`, of which this rank is one, as slowest_median() finds it
  /// over all ranks of the world. `bytes` counts the whole tensor, as nccl-tests does: the output of all_gather and
  /// gather, else a member's input. Members' blocks differ by one element at most. Permute goes to the next member;
  /// send, with its recv, from the last member to the first. Kinds: all others.
  Timing time(Kind kind, std::span<const int> members, int64_t bytes);

  /// The time of an all_reduce by levels: a reduce_scatter among `near`, an all_reduce among `far`, an all_gather among
  /// `near`. Every pair of a near and a far group shares one rank.
  Timing time_by_levels(std::span<const int> near, std::span<const int> far, int64_t bytes);

  /// How much `kernel` and transfers of `bytes` slow each other down, as the worst-off rank finds it. `in_background`:
  /// collectives move between start and wait (Gloo, MPI), so each rank runs kernels while an all_reduce is under way.
  /// If not, ranks move data while others compute: every other rank copies, as a rank that waits does. Of two ranks,
  /// one each; there are at least two, with a core for each thread. If a rank has no kernel,
  /// nothing is measured.
  Slowdown slowdown(const std::function<void()>& kernel, int64_t bytes, bool in_background);

  /// The time in which each rank copies `bytes` to memory of its own, all ranks at once.
  Timing time_of_copy(int64_t bytes);

 private:
  Timing median(const std::function<void()>& body);
  Slowdown slowdown_in_background(const std::function<void()>& kernel, int64_t bytes);
  Slowdown slowdown_at_wait(const std::function<void()>& kernel, int64_t bytes);
  double slowest(double seconds);

  World& world_;
  int rank_;
  TimingOptions options_;
  bool writes_;
  std::unique_ptr<Communicator> all_;
  std::shared_ptr<std::byte[]> in_, out_;
};

}  // namespace tessera::comm
