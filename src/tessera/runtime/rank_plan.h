#pragma once

#include <chrono>
#include <set>
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
  bool keep_all = false;     ///< no buffer is reused, so that every value can be read after a run
  bool overlap = true;       ///< run what does not depend on a communication while it is under way (schedule.h)
  int prefetch = kUnderWay;  ///< communications that may be under way at once
};

/// A program bound to one rank and to values of all symbols: kernels prepared, every buffer placed. run() allocates
/// nothing.
class RankPlan {
 public:
  /// `programs`: of the rank's mesh; it runs its own of them.
  RankPlan(RankState& rank, std::shared_ptr<const RankPrograms> programs, const Symbols& symbols,
           const PlanOptions& options);

  /// The same plan as the constructor makes for these symbols, found by looking only at what they change of `like`, a
  /// plan of the rank for others (rebind.cpp). Null: it would be another one in more than sizes, or as much work.
  static std::unique_ptr<RankPlan> rebound(const RankPlan& like, const Symbols& symbols);

  /// Runs all steps on whole inputs (one per program input, extents as bound) and writes this rank's parts of the whole
  /// outputs (one per program output), from the rank's thread. `times` may be null. States have their next values
  /// after commit(), which is for when all ranks have got so far.
  void run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs, RankTimes* times = nullptr);

  /// Makes the next values of states their values.
  void commit();

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
  void abandon_memory() const {
    keep_for_good(bound_expressions_);
    keep_for_good(frame_);
  }

  /// Every step with the places of its operands, results and scratch memory: two plans of the same text do the same.
  std::string text() const;

 private:
  enum class Where : uint8_t { none, arena, fixed, input, output, state, next };
  struct Location {
    Where where = Where::none;
    // arena: index of the buffer; input, output: of that of the program; state, next: of the frame's slot
    size_t offset = 0;
    const void* address = nullptr;  // fixed
    size_t skip = 0;                // bytes before the value
  };
  /// A group of nodes: of a kernel, or else of a communication. Maybe several plans', which run one after the other.
  struct Step {
    std::shared_ptr<kernels::Kernel> kernel;  // maybe other steps', too
    std::shared_ptr<Communication> communication;
    StepInfo info;
    std::vector<Location> inputs, outputs;
    int scratch = -1;  // buffer
    std::vector<const void*> in;
    std::vector<void*> out;
    // For who makes it again at other sizes.
    bool meanwhile = false;      // communication is under way when it runs
    bool writes_state = false;   // over the value that it had before
    int taken_over = -1;         // operand in whose memory the first result is
    std::vector<int> last_uses;  // of operands' buffers, as they were known before the step; -1: no buffer
  };
  struct StateReaders;
  struct Frame;   // plan_frame.h
  struct Change;  // there
  struct InputCopy {
    size_t input;
    int buffer;
    Box box;
    size_t element;
  };

  RankPlan(const RankPlan& like, const Symbols& symbols);

  std::optional<int64_t> lookup(std::string_view name) const;
  [[noreturn]] void refuse_unknown(std::string_view name) const;
  std::vector<int64_t> bound(const std::vector<Expr>& expressions) const;
  std::string sizes() const;
  Dims bound_dims(const Value* value) const;
  void require_windows(const Node& node) const;
  std::optional<std::vector<int64_t>> known_ints(const Value* value) const;
  kernels::TensorDesc plain_desc(const Value* value) const;
  kernels::TensorDesc desc(const Value* value) const;
  Box box(const Value* value) const;
  static size_t skip_of(const Box& part, const Value* value);
  bool writes(const Value* value) const;
  void place_outputs();
  void place_states();
  StateReaders readers_of_states() const;
  bool can_write_over(const Value* state, const Value* next, const StateReaders& readers) const;
  bool reads_in_place(const kernels::NodeGroup& group, const Value* state) const;
  void prepare_communication_of(int step);
  std::vector<Action> order() const;
  void note_uses();
  void place_sources();
  void place_expression(const Value* value, const std::vector<int64_t>& elements);
  void prepare(const kernels::NodeGroup& group, const Span& span, Step& made);
  std::vector<int> prepare_kernel(const kernels::NodeGroup& group, Step& made, kernels::PrepareContext& context);
  void place_results(const kernels::NodeGroup& group, const Span& span, const std::vector<int>& in_place,
                     const kernels::PrepareContext& context, Step& made);
  bool can_take_over(const kernels::NodeGroup& group, const Span& span, const std::vector<int>& in_place, int index,
                     const kernels::PrepareContext& context, const Step& made) const;
  void settle_operands(const kernels::NodeGroup& group, Step& made, kernels::PrepareContext& context);
  const Value* home(const Value* value) const;
  const kernels::Placed* view_of(const Value* value) const;
  const Location* located(const Value* value) const;
  const Location& locate(const Value* value);
  int last_use(const Value* value) const;
  int new_buffer(size_t bytes, const Span& span);
  std::byte* resolve(const Location& location, std::byte* arena) const;
  void take(const Action& action, std::byte* arena);
  void advance_communication();
  void write_step_names();

  // Of rebound():
  bool rebind();
  bool bind_changed(const std::vector<std::string>& symbols);
  bool place_changed_outputs(const Change& change);
  bool place_changed_inputs(const Change& change);
  void move_views();
  void move(const Value* value, const Location& to);
  void touch(const Value* value);
  bool prepare_again(int step);
  const Change& change_of(const std::vector<std::string>& symbols) const;

  RankState& rank_;
  std::shared_ptr<const RankPrograms> programs_;
  const spmd::Program& program_;  // the rank's own
  Symbols symbols_;
  PlanOptions options_;
  std::shared_ptr<Frame> frame_;  // all that other plans have, too; never null
  // Beyond the frame, or other than there:
  mutable std::unordered_map<const Value*, Dims> dims_;  // that desc() was asked for
  std::map<const Value*, kernels::Placed> views_;        // values in the memory of others
  std::map<const Value*, Location> locations_;
  std::vector<Tensor> bound_expressions_;
  // All of them:
  std::vector<Lifetime> lifetimes_;
  std::vector<InputCopy> copies_;
  std::vector<std::shared_ptr<Step>> steps_;        // as the program has them
  std::vector<int> under_way_;                      // steps that are communications which have started
  std::chrono::steady_clock::time_point advanced_;  // when they were last let advance
  MemoryPlan memory_;
  // While it is made from another plan's frame:
  const Step* before_ = nullptr;     // the step as that plan has it
  bool differs_ = false;             // in more than sizes
  std::set<int> touched_;            // steps to be prepared again
  std::vector<const void*> inputs_;  // of the last run
  std::vector<void*> outputs_;
};

}  // namespace tessera::runtime
