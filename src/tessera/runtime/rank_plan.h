#pragma once

#include "tessera/kernels/groups.h"
#include "tessera/runtime/held_part.h"
#include "tessera/runtime/memory_plan.h"
#include "tessera/runtime/profile.h"
#include "tessera/runtime/rank_state.h"

namespace tessera::runtime {

/// A program bound to one rank and to values of all symbols: kernels prepared, every buffer placed. run() allocates
/// nothing.
class RankPlan {
 public:
  /// `keep_all`: no buffer is reused, so that every value can be read after a run.
  RankPlan(RankState& rank, const Symbols& symbols, bool keep_all);

  /// Runs all steps on whole inputs (one per program input, extents as bound) and writes this rank's parts of the whole
  /// outputs (one per program output), from the rank's thread. `times` may be null.
  void run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs, RankTimes* times = nullptr);

  /// Copies this rank's part of a value, as the last run left it, into the whole tensor `whole`, if this rank is the
  /// one that writes it (the first of those that hold the same part).
  void store(const Value* value, void* whole) const;

  /// Extents of the global tensor that a local value stands for.
  Dims global_dims(const Value* value) const;

  size_t arena_bytes() const { return memory_.bytes; }

 private:
  enum class Where : uint8_t { none, arena, fixed, input, output };
  struct Location {
    Where where = Where::none;
    size_t offset = 0;              // arena: index of the buffer; input, output: index of that of the program
    const void* address = nullptr;  // fixed
    size_t skip = 0;                // bytes before the value
  };
  struct Step {
    std::unique_ptr<kernels::Kernel> kernel;
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
  std::vector<int64_t> bound(const std::vector<Expr>& expressions) const;
  Dims bound_dims(const Shape& shape) const;
  std::optional<std::vector<int64_t>> known_ints(const Value* value) const;
  kernels::TensorDesc desc(const Value* value) const;
  Box box(const Value* value) const;
  bool writes(const Value* value) const;
  void place_sources();
  void place_outputs();
  void prepare(const kernels::NodeGroup& group, int step);
  void prepare_group(const kernels::NodeGroup& group, int step, Step& made, kernels::PrepareContext& context);
  void settle_operands(const kernels::NodeGroup& group, Step& made, kernels::PrepareContext& context);
  const Value* home(const Value* value) const;
  const Location& locate(const Value* value);
  int new_buffer(size_t bytes, int step);
  std::byte* resolve(const Location& location, std::byte* arena) const;
  void write_step_names();

  RankState& rank_;
  Symbols symbols_;
  bool keep_all_;
  std::map<const Value*, int64_t> blocked_;        // values that lie in blocks of channels
  std::map<const Value*, kernels::Placed> views_;  // values in the memory of others
  std::map<const Value*, Location> locations_;
  std::vector<Lifetime> lifetimes_;
  std::map<const Value*, int> last_use_;
  std::vector<Tensor> bound_expressions_;
  std::vector<InputCopy> copies_;
  std::vector<Step> steps_;
  std::shared_ptr<std::vector<StepInfo>> infos_ = std::make_shared<std::vector<StepInfo>>();  // of the steps
  MemoryPlan memory_;
  std::map<const Value*, Location> direct_;  // results that are made where outputs lie
  std::shared_ptr<std::byte[]> names_;       // of the steps, each ended by 0, for flight records
  std::vector<const char*> name_of_step_;    // within names_
  std::vector<const void*> inputs_;          // of the last run
  std::vector<void*> outputs_;
};

}  // namespace tessera::runtime
