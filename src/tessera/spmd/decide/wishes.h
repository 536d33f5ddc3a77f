#pragma once

#include <deque>
#include <optional>
#include <unordered_set>
#include <vector>

#include "tessera/spmd/decide/decide.h"

namespace tessera::spmd {

/// Per subfactor of a node: the axes over which it must be split to make its first result in this layout; nullopt if it
/// cannot.
std::optional<std::vector<std::vector<AxisRef>>> axes_for(const Layout& layout, const NodeLayout& node,
                                                          const Sharding& wanted);

/// A value in a layout that a use wants, at one step of the way from the use up to the value's source.
struct Level {
  const Value* value = nullptr;
  Sharding wanted;
  /// Per subfactor of the movement that makes `value` from the next level: the axes over which it is split then. Empty
  /// at the last level.
  std::vector<std::vector<AxisRef>> axes;
};

/// The value itself; if a movement (Transpose, Reshape) makes it, also the movement's operand, in the layout from which
/// the movement makes what is wanted; and so on. Example: if Transpose(h) is wanted in [-, tp], then h is wanted in
/// [tp, -].
///
/// The way ends at values that are computed, whose layout an annotation or a state's storage fixes, or that are in
/// `fetched`. It does not reach sources, because each use of a source takes its own slice. It is empty for sources and
/// for partial sums.
std::vector<Level> way_up(const Layout& layout, const Value* value, const Sharding& wanted, const ValueSet& fetched);

/// The layouts in which a program's uses want each value. A movement has no wishes of its own if its users' wishes pass
/// through it, since it can be computed in other layouts.
class Wishes {
 public:
  /// A node between a use and a value that it wants, and those nearer to the use: movements, and last the user (null
  /// for a graph output or a next value).
  struct Passed {
    const Node* node = nullptr;
    const Passed* before = nullptr;
  };
  struct Wish {
    Sharding layout;
    std::vector<const Passed*> uses;  ///< for each use, the node next to this value

    /// Whether a use other than this node, and not through this node, is among them.
    bool is_of_others(const Node* node) const;
  };

  Wishes(const Graph& graph, const Layout& layout, const Decisions& decisions);
  Wishes(const Wishes&) = delete;

  /// In the order from the last use to the first.
  const std::vector<Wish>& of(const Value* value) const;
  /// How many uses want the value in this layout.
  int uses(const Value* value, const Sharding& layout) const;
  /// Whether a use other than this node, and not through this node, wants the value in this layout.
  bool is_wanted_beside(const Node* node, const Value* value, const Sharding& layout) const;

 private:
  void add(const Node* user, const Value* value, const Sharding& wanted);
  const Wish* find(const Value* value, const Sharding& layout) const;

  const Layout& layout_;
  const ValueSet fetched_;
  ValueMap<std::vector<Wish>> wishes_;
  std::deque<Passed> chains_;
  std::unordered_set<const Node*> passed_;  // movements through which a wish goes
};

/// Calls `visit(value, layout)` for the graph's outputs and the next values of states.
template <typename Visit>
void for_each_leaf(const Graph& graph, const Decisions& decisions, Visit visit) {
  for (const Value* output : graph.outputs) visit(output, decisions.outputs.at(output));
  for (const auto& state : graph.values())
    if (state->next) visit(state->next, decisions.sources.at(state.get()));
}

/// Calls `visit(value, layout)` for each operand of a node that has a layout.
template <typename Visit>
void for_each_operand(const NodeLayout& node, const NodeDecision& decision, Visit visit) {
  for (size_t t = 0; t < node.operand_slots.size(); ++t)
    if (node.operand_slots[t] >= 0) visit(node.node->inputs[t], decision.operands[t]);
}

}  // namespace tessera::spmd
