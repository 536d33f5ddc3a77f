#pragma once

#include <optional>
#include <set>
#include <unordered_map>

#include "tessera/base/keep.h"
#include "tessera/bind/groups.h"
#include "tessera/bind/rank.h"
#include "tessera/spmd/partition/held_part.h"

namespace tessera::bind {

struct Options {
  bool keep_all = false;     ///< no buffer is reused, so that every value can be read after a run
  bool overlap = true;       ///< run what does not depend on a communication while it is under way (schedule.h)
  int prefetch = kUnderWay;  ///< communications that may be under way at once
};

/// A program bound to one rank and to values of all symbols: kernels prepared, every buffer placed. Its product is the
/// machine program. The constructor is the list of the passes; each has a file of its own in this folder.
class Binding {
 public:
  /// `program`: the rank's own, which must outlive the binding.
  Binding(std::shared_ptr<Rank> rank, const spmd::Program& program, const Symbols& symbols, const Options& options);

  /// The same binding as the constructor makes for these symbols, found by looking only at what they change of `like`,
  /// a binding of the rank for others (rebind.cpp). Null: it would be another one in more than sizes, or as much work.
  static std::unique_ptr<Binding> rebound(const Binding& like, const Symbols& symbols);

  const MachineProgram& machine() const { return machine_; }

  /// Where the last run left a value.
  const Location& location_of(const Value* value) const { return *located(value); }
  /// The part of a value's global tensor that this rank has, and whether it is the one that writes this part (the first
  /// of those that hold it).
  Box box(const Value* value) const;
  bool writes(const Value* value) const;

  /// What is in the arena when most is, by name, whole outputs not: for messages.
  std::vector<device::NamedBytes> pieces() const;

  /// Leaves tensors of its own in memory for good, for communications that were under way as a run failed.
  void abandon_memory() const {
    keep_for_good(bound_expressions_);
    keep_for_good(frame_);
  }

  /// Every action with its queue, the places and types of its operands and results, and its cost; then the copies, the
  /// buffers, and the elements of expressions. Two bindings of the same text do the same.
  std::string text() const;

 private:
  using Where = Location::Where;
  struct StateReaders;
  struct Frame;         // frame.h
  struct Change;        // there
  struct PackedWeight;  // there

  Binding(const Binding& like, const Symbols& symbols);

  // sizes.cpp: extents and elements as numbers
  std::optional<int64_t> lookup(std::string_view name) const;
  [[noreturn]] void refuse_unknown(std::string_view name) const;
  std::vector<int64_t> bound(const std::vector<Expr>& expressions) const;
  std::string sizes() const;
  Dims bound_dims(const Value* value) const;
  void require_windows(const Node& node) const;
  std::optional<std::vector<int64_t>> known_ints(const Value* value) const;
  kernels::TensorDesc plain_desc(const Value* value) const;
  kernels::TensorDesc desc(const Value* value) const;

  // groups.cpp, on group.cpp, views.cpp and blocks.cpp
  void assign_groups();
  // buckets.cpp
  void join_buckets();
  const Value* home(const Value* value) const;
  const Alias* view_of(const Value* value) const;

  // outputs.cpp
  static size_t skip_of(const Box& part, const Value* value);
  size_t skip_of(const Alias& view, const Value* value) const;
  void place_outputs();
  void copy_outputs();
  // states.cpp
  void place_states();
  void place_exchanges();
  StateReaders readers_of_states() const;
  bool can_write_over(const Value* state, const Value* next, const StateReaders& readers) const;
  bool reads_in_place(const NodeGroup& group, const Value* state, const Value* next) const;

  // order.cpp
  void prepare_communications();
  void prepare_communication_of(int step);
  struct Tasks {
    std::vector<Task> tasks;
    std::vector<Memory> memories;
  };
  Tasks tasks() const;
  std::vector<Action> order(const Tasks& of) const;
  // flow.cpp: branches and loops
  void find_regions();
  std::vector<Action> order_by_sections(const Tasks& of) const;
  void place_carried();
  void control();
  void note_uses_by_later_iterations();
  // buffers.cpp
  void note_uses();
  int last_use(const Value* value) const;
  int new_buffer(size_t bytes, const Span& span, Occupant occupant);
  void note_occupants();
  void place_buffers();

  // sources.cpp: inputs, constants, expressions, states that never change
  void place_sources();
  bool lies_in_input(const Box& part) const;
  bool is_staged(const Box& part) const;
  void place_expression(const Value* value, const std::vector<int64_t>& elements);
  const Location* located(const Value* value) const;
  const Location& locate(const Value* value);
  const void* known_elements(int step, size_t index);

  // packing.cpp
  void pack_weights();
  const PackedWeight* packed_operand(int step, size_t index) const;
  // steps.cpp
  void prepare_steps();
  void prepare(int step);
  void prepare_kernel(int step);
  // in_place.cpp
  void place_results();
  void place_results_of(int step);
  Location place_of_operand(int step, size_t index);
  Location place_of_result(int step, size_t index);
  bool can_take_over(int step, int index, size_t result) const;
  // cost.cpp
  void add_costs();
  Cost cost_of(int step) const;
  // queues.cpp
  std::vector<Enqueued> on_queues(const std::vector<Action>& actions) const;

  // rebind.cpp
  void keep_for_other_sizes();
  bool rebind();
  bool bind_changed(const std::vector<std::string>& symbols);
  bool place_changed_outputs(const Change& change);
  bool place_changed_inputs(const Change& change);
  void move_views();
  void move(const Value* value, const Location& to);
  void touch(const Value* value);
  bool prepare_again(int step);
  const Change& change_of(const std::vector<std::string>& symbols) const;

  std::shared_ptr<Rank> rank_;
  const spmd::Program& program_;
  Symbols symbols_;
  Options options_;
  MachineProgram machine_;
  std::shared_ptr<Frame> frame_;  // all that bindings for other sizes have, too; never null
  // These hold what is not in the frame, or differs from it:
  mutable std::unordered_map<const Value*, Dims> dims_;  // that desc() was asked for
  std::map<const Value*, Alias> views_;                  // values in the memory of others
  std::map<const Value*, Location> locations_;
  std::vector<Tensor> bound_expressions_;
  std::map<const void*, const void*> host_elements_;  // of fixed places, where the device has memory of its own
  // While it is made from another binding's frame:
  const Step* before_ = nullptr;  // the step as that binding has it
  bool differs_ = false;          // in more than sizes
  std::set<int> touched_;         // steps to be prepared again
};

}  // namespace tessera::bind
