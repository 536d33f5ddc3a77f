#pragma once

#include "tessera/base/keep.h"
#include "tessera/bind/binding.h"
#include "tessera/runtime/profile.h"
#include "tessera/runtime/rank_state.h"
#include "tessera/runtime/run_limits.h"

namespace tessera::runtime {

/// A program bound to one rank and to values of all symbols, ready to run: the machine program, which run() enqueues on
/// the rank's device. run() allocates nothing on devices whose memory is the host's.
class RankPlan {
 public:
  /// `programs`: of the rank's mesh; it runs its own of them.
  RankPlan(RankState& rank, std::shared_ptr<const RankPrograms> programs, const Symbols& symbols,
           const bind::Options& options);

  /// The same plan as the constructor makes for these symbols, found by looking only at what they change of `like`, a
  /// plan of the rank for others (bind/rebind.cpp). Null: it would be another one in more than sizes, or as much work.
  static std::unique_ptr<RankPlan> rebound(const RankPlan& like, const Symbols& symbols);

  /// Runs all steps on whole inputs (one per program input, extents as bound) and writes this rank's parts of the whole
  /// outputs (one per program output), from the rank's thread. `times` may be null. States have their next values
  /// after commit(), which is for when all ranks have got so far. Throws what the limits throw.
  void run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs, RankTimes* times = nullptr,
           const RunLimits& limits = {});

  /// Makes the next values of states their values.
  void commit();

  /// Copies this rank's part of a value, as the last run left it, into the whole tensor `whole`, if this rank is the
  /// one that writes it (the first of those that hold the same part).
  void store(const Value* value, void* whole);

  /// Bytes that a run needs beside states and whole outputs: the arena, and the host's copies.
  size_t arena_bytes() const { return machine().arena_bytes + machine().staging_bytes; }
  const std::shared_ptr<const RankPrograms>& programs() const { return programs_; }
  const bind::MachineProgram& machine() const { return binding_->machine(); }

  /// What is in the arena, whole outputs not: for messages.
  std::vector<device::NamedBytes> pieces() const { return binding_->pieces(); }

  /// Leaves its tensors in memory for good, for communications that were under way as a run failed.
  void abandon_memory() const {
    binding_->abandon_memory();
    keep_for_good(names_);
  }

  /// Two plans of the same text do the same.
  std::string text() const { return binding_->text(); }

 private:
  /// The steps' names for flight records, by action.
  struct StepNames {
    std::shared_ptr<std::byte[]> memory;
    std::vector<const char*> of_action;
  };

  RankPlan(const RankPlan& like, std::unique_ptr<bind::Binding> binding);

  std::byte* resolve(const bind::Location& place) const;
  void bring_in(const bind::HostCopy& copy);
  void bring_out(const bind::HostCopy& copy, void* whole);
  void act(size_t action, RankTimes* times);
  void follow_controls(RankTimes* times);
  void join_queues();
  template <typename T>
  T read(const bind::Location& place);
  void enqueue(const bind::Enqueued& enqueued, device::Queue& queue);
  void write_step_names();

  RankState& rank_;
  std::shared_ptr<const RankPrograms> programs_;
  std::unique_ptr<bind::Binding> binding_;
  std::shared_ptr<StepNames> names_;
  // The last run's:
  std::byte* arena_ = nullptr;
  std::byte* staging_ = nullptr;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  RunLimits limits_;
  std::vector<size_t> offsets_;                         // of the arena's buffers, which loops exchange
  std::vector<std::shared_ptr<device::Event>> events_;  // by action
};

}  // namespace tessera::runtime
