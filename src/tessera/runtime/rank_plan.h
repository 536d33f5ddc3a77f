#pragma once

#include <chrono>
#include <unordered_map>

#include "tessera/base/keep.h"
#include "tessera/kernels/groups.h"
#include "tessera/runtime/collective.h"
#include "tessera/runtime/held_part.h"
#include "tessera/runtime/memory_plan.h"
#include "tessera/runtime/profile.h"
#include "tessera/runtime/rank_state.h"
#include "tessera/runtime/schedule.h"

namespace tessera::runtime {

struct PlanOptions {
  bool keep_all = false;  ///< no buffer is reused, so that every value can be read after a run
  bool overlap = true;    ///< run what does not depend on a communication while it is under way (schedule.h)
};

/// A program bound to one rank and to values of all symbols: kernels prepared, every buffer placed. run() allocates
/// nothing.
class RankPlan {
 public:
  /// `programs`: of the rank's mesh; it runs its own of them.
  RankPlan(RankState& rank, std::shared_ptr<const RankPrograms> programs, const Symbols& symbols,
           const PlanOptions& options);

  /// Runs all steps on whole inputs (one per program input, extents as bound) and writes this rank's parts of the whole
  /// outputs (one per program output), from the rank's thread. `times` may be null.
  void run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs, RankTimes* times = nullptr);

  /// Copies this rank's part of a value, as the last run left it, into the whole tensor `whole`, if this rank is the
  /// one that writes it (the first of those that hold the same part).
  void store(const Value* value, void* whole) const;

  /// Extents of the global tensor that a local value stands for.
  Dims global_dims(const Value* value) const;

  size_t arena_bytes() const { return memory_.bytes; }
  const std::shared_ptr<const RankPrograms>& programs() const { return programs_; }

  /// What is in the arena, whole outputs not: for messages.
  std::vector<NamedBytes> pieces() const;

  /// Leaves tensors of its own in memory for good, for communications that were under way as a run failed.
  void abandon_memory() const { keep_for_good(bound_expressions_); }

 private:
  enum class Where : uint8_t { none, arena, fixed, input, output };
  struct Location {
    Where where = Where::none;
    size_t offset = 0;              // arena: index of the buffer; input, output: index of that of the program
    const void* address = nullptr;  // fixed
    size_t skip = 0;                // bytes before the value
  };
  /// A group of nodes: of a kernel, or else of a communication.
  struct Step {
    std::shared_ptr<kernels::Kernel> kernel;  // maybe other plans', too
    std::unique_ptr<Communication> communication;
    StepInfo info;
    std::vector<Location> inputs, outputs;
    int scratch = -1;  // buffer
    std::vector<const void*> in;
    std::vector<void*> out;
  };
  struct InputCopy {
    size_t input;
    int buffer;
    Box box;
    size_t element;
  };

  std::optional<int64_t> lookup(std::string_view name) const;
  [[noreturn]] void refuse_unknown(std::string_view name) const;
  std::vector<int64_t> bound(const std::vector<Expr>& expressions) const;
  std::string sizes() const;
  Dims bound_dims(const Value* value) const;
  void require_windows(const Node& node) const;
  std::optional<std::vector<int64_t>> known_ints(const Value* value) const;
  kernels::TensorDesc desc(const Value* value) const;
  Box box(const Value* value) const;
  bool writes(const Value* value) const;
  void place_outputs();
  void prepare_communications(const std::vector<kernels::NodeGroup>& groups);
  void order(const std::vector<kernels::NodeGroup>& groups);
  void note_uses(const std::vector<kernels::NodeGroup>& groups);
  void place_sources();
  void prepare(const kernels::NodeGroup& group, const Span& span, bool meanwhile, Step& made);
  std::vector<int> prepare_kernel(const kernels::NodeGroup& group, bool meanwhile, Step& made,
                                  kernels::PrepareContext& context);
  void place_results(const kernels::NodeGroup& group, const Span& span, const std::vector<int>& in_place,
                     const kernels::PrepareContext& context, Step& made);
  bool can_take_over(const kernels::NodeGroup& group, const Span& span, const std::vector<int>& in_place, int index,
                     const kernels::PrepareContext& context, const Step& made) const;
  void settle_operands(const kernels::NodeGroup& group, Step& made, kernels::PrepareContext& context);
  const Value* home(const Value* value) const;
  const Location& locate(const Value* value);
  int last_use(const Value* value) const;
  int new_buffer(size_t bytes, const Span& span);
  std::byte* resolve(const Location& location, std::byte* arena) const;
  void take(const Action& action, std::byte* arena);
  void advance_communication();
  void write_step_names();

  RankState& rank_;
  std::shared_ptr<const RankPrograms> programs_;
  const spmd::Program& program_;  // the rank's own
  Symbols symbols_;
  PlanOptions options_;
  mutable std::unordered_map<const Value*, Dims> dims_;  // that desc() was asked for
  std::map<const Value*, int64_t> blocked_;              // values that lie in blocks of channels
  std::map<const Value*, kernels::Placed> views_;        // values in the memory of others
  std::map<const Value*, Location> locations_;
  std::vector<Lifetime> lifetimes_;
  std::map<const Value*, std::vector<Span>> uses_;  // of a value's memory by its readers, and after the run, in actions
  std::vector<Tensor> bound_expressions_;
  std::vector<InputCopy> copies_;
  std::vector<Step> steps_;      // as the program has them
  std::vector<Action> actions_;  // upon these, in running order
  std::shared_ptr<std::vector<StepInfo>> infos_ = std::make_shared<std::vector<StepInfo>>();  // of the actions
  std::vector<int> under_way_;                      // steps that are communications which have started
  std::chrono::steady_clock::time_point advanced_;  // when they were last let advance
  MemoryPlan memory_;
  std::map<const Value*, Location> direct_;  // results that are made where outputs lie
  std::shared_ptr<std::byte[]> names_;       // of the steps, each ended by 0, for flight records
  std::vector<const char*> name_of_action_;  // within names_
  std::vector<const void*> inputs_;          // of the last run
  std::vector<void*> outputs_;
};

}  // namespace tessera::runtime
