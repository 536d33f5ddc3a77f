#pragma once

#include <set>
#include <string>

#include "tessera/ir/graph.h"
#include "tessera/ops/library/node_builder.h"

namespace tessera::generate {

/// The positions of the tokens of a run, which stand behind those that caches hold. They are made where they are used,
/// since passes drop unused values.
class RunPositions {
 public:
  /// `held`: int64 [batch], how many tokens caches hold of each text; `sequence`: the symbol of a run's tokens.
  RunPositions(Graph& graph, int64_t batch, std::string sequence, Value* held)
      : graph_(graph), batch_(batch), sequence_(std::move(sequence)), held_(held) {}

  /// [batch, sequence]
  Value* of_rows();
  /// [sequence], where all texts hold as many tokens
  Value* of_all();
  /// Whether a Range is one of ours.
  bool made(const Value* range) const { return own_.contains(range); }

  /// Lets the uses of an input have the positions, in its type.
  void replace_input(Value* input, Value* positions);
  /// Lets Ranges that begin at the first token of the run, which the model takes for number `first`, be positions.
  /// `by_rows`: those of each text; throws a user error where a use has no dimension for texts.
  void replace_ranges(const Expr& first, bool by_rows);

 private:
  ops::NodeBuilder at_front();
  Value* index(ops::NodeBuilder& b);
  Value* shifted(Value* positions, int64_t by, const Node* before);
  void replace_by_rows(Value* range, int64_t shift);

  Graph& graph_;
  int64_t batch_;
  std::string sequence_;
  Value* held_;
  Value *of_rows_ = nullptr, *of_all_ = nullptr;
  std::set<const Value*> own_;
};

}  // namespace tessera::generate
