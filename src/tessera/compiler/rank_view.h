#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/compiler/programs.h"
#include "tessera/explain.h"

namespace tessera::compiler {

/// A program at some sizes, as one rank has it. Nothing is loaded.
class RankView {
 public:
  /// Sizes that are missing are those that choices by cost assumed. Keeps a reference to `compiled`. Throws a user
  /// error for a rank that the mesh does not have.
  RankView(const CompiledProgram& compiled, int64_t rank, const SymbolSizes& sizes);

  /// What it holds and does in a step, which takes a plan of all of it.
  RankFigures figures() const;
  /// What it holds during each operation of a run, in order.
  std::vector<MemoryMoment> memory_over_time() const;
  /// Bytes of states that it shares with another program on the same rank: of states that change, and of others that
  /// both store in the same way.
  int64_t bytes_shared_with(const RankView& other) const;
  /// Its machine program at these sizes.
  std::string machine_text(const runtime::ExecutorOptions& options) const;
  /// One rank of each class of ranks that run alike.
  std::vector<int> unlike_ranks() const { return ranks_of_classes(*programs_); }

 private:
  const spmd::Program& program() const { return programs_->of(rank_); }
  double at(const Expr& expr) const;
  std::vector<const Value*> states() const;  // that it holds during steps
  int64_t bytes_of_state(const Value* state) const;
  int64_t state_bytes() const;
  // Those of one text have the same elements.
  std::string text_of(const Value* state) const;

  const CompiledProgram& compiled_;
  int rank_;
  SymbolSizes given_, sizes_;
  std::shared_ptr<const runtime::RankPrograms> programs_;
};

}  // namespace tessera::compiler
