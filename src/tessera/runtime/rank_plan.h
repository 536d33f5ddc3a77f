#pragma once

#include "tessera/base/keep.h"
#include "tessera/bind/binding.h"
#include "tessera/runtime/profile.h"
#include "tessera/runtime/rank_state.h"
#include "tessera/runtime/run_limits.h"

namespace tessera::runtime {

/// A program bound to one rank and to values of all symbols. run() enqueues its machine program on the rank's device,
/// and allocates nothing on devices whose memory is the host's.
class RankPlan {
 public:
  /// `programs`: those of all ranks of the mesh; the plan is for the rank's own.
  RankPlan(RankState& rank, std::shared_ptr<const RankPrograms> programs, const Symbols& symbols,
           const bind::Options& options);

  /// The plan that the constructor would make for these symbols, derived from `like`, a plan of the rank for other
  /// symbols, by looking only at what changes (bind/rebind.cpp). Null if more than sizes would change, or if it would
  /// be as much work.
  static std::unique_ptr<RankPlan> rebound(const RankPlan& like, const Symbols& symbols);

  /// Runs all steps on whole inputs (one per program input, extents as bound) and writes this rank's parts of the whole
  /// outputs (one per program output), from the rank's thread. `times` may be null. States have their next values
  /// after commit(), which is for when all ranks have got so far. Throws what the limits throw.
  ///
  /// `stop`: of the ranks that stop together if the limits end the run (may_stop_together()); false: they did. Null: a
  /// rank stops by itself, which is a running error.
  bool run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs, RankTimes* times = nullptr,
           const RunLimits& limits = {}, StopPoint* stop = nullptr);
  /// From now on, runs leave parts of outputs in the rank's own memory, where own_part() finds them, for a rank that
  /// sends them. Changes nothing on a device with memory of its own.
  void leave_outputs();
  /// The rank's part of an output, dense, as the last run left it; null: it is in the whole output.
  const void* own_part(size_t port) const;
  /// Whether nothing of a run that ends before its last operator stays behind.
  bool may_stop_together() const;

  /// Makes the next values of states their current values.
  void commit();

  /// Copies this rank's part of a value, as the last run left it, into the whole tensor `whole`, if this rank writes it
  /// (the first rank that holds the part does).
  void store(const Value* value, void* whole);

  /// Bytes that a run needs beside states and whole outputs: the arena, and the host's copies.
  size_t arena_bytes() const { return machine().arena_bytes + machine().staging_bytes; }
  /// About the bytes of the plan itself, without arenas, weights, and the kernels that plans share.
  size_t bytes() const;
  const std::shared_ptr<const RankPrograms>& programs() const { return programs_; }
  const bind::MachineProgram& machine() const { return binding_->machine(); }

  /// The contents of the arena without whole outputs, for messages.
  std::vector<device::NamedBytes> pieces() const { return binding_->pieces(); }

  /// Never frees its tensors, because communications that were under way when a run failed may still use them.
  void abandon_memory() const {
    binding_->abandon_memory();
    keep_for_good(names_);
  }

  /// Plans with the same text do the same.
  std::string text() const { return binding_->text(); }
  /// Of each step, for its time (Binding::works).
  std::vector<bind::StepWork> works() const { return binding_->works(); }

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
  bool act(size_t action, RankTimes* times);
  bool act_all(RankTimes* times);
  bool follow_controls(RankTimes* times);
  void heed_limits() const;
  bool stops_before(const bind::Enqueued& enqueued);
  void join_queues();
  void follow_compute();
  template <typename T>
  T read(const bind::Location& place);
  void enqueue(const bind::Enqueued& enqueued, device::Queue& queue);
  void write_step_names();

  RankState& rank_;
  std::shared_ptr<const RankPrograms> programs_;
  std::unique_ptr<bind::Binding> binding_;
  std::shared_ptr<StepNames> names_;
  bool leaves_outputs_ = false;
  // The last run's:
  std::byte* arena_ = nullptr;
  std::byte* staging_ = nullptr;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  RunLimits limits_;
  StopPoint* stop_ = nullptr;
  int64_t begun_ = 0;                                   // communications
  std::vector<size_t> under_way_;                       // steps that communicate, of these
  std::vector<size_t> offsets_;                         // of the arena's buffers, which loops exchange
  std::vector<device::Queue*> queues_;                  // by number
  std::vector<std::shared_ptr<device::Event>> events_;  // by action
};

}  // namespace tessera::runtime
