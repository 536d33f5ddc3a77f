#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/base/function_ref.h"
#include "tessera/spmd/decide/prices.h"

namespace tessera::spmd {

/// The decision of one node, and what choosing it tells of the pass.
struct Outcome {
  NodeDecision decision;
  bool compared = false;  ///< the node's neighbours disagree
  Price orders;           ///< of the choice, if it was compared
};

/// Decisions that repeat: a node that is like an earlier one, in a like context, gets the same decision, which is
/// computed once. Most nodes of a model are of this kind, since its layers are alike.
///
/// Two nodes are alike if their operators, rules and subfactors are equal, and propagation gave their operands and
/// results equal layouts; with a machine, their FLOPs are equal, too. Their contexts are alike if the layouts that
/// their operands have so far are equal, and those that uses want of their results, of their operands, and of the
/// values from which movements make these.
///
/// Invariant: a key holds all that Prices and the choice between layouts read of a node and its neighbours. Nodes for
/// which they read more have no key: those with partial operands or priced factors, because terms of sums are followed
/// from sum to sum, and those of carried values.
class Repeats {
 public:
  using Key = std::vector<int64_t>;

  /// `layout` must outlive it, and stay as it is.
  Repeats(const Layout& layout, const Costs& costs, const Storage& storage, const std::set<const Node*>& scattered);

  /// The outcome for the next node; `compute` makes it if it is not known.
  Outcome of(const NodeLayout& node, const Decided& decided, FunctionRef<Outcome()> compute);

  /// The number of outcomes that were computed.
  int64_t computed() const { return computed_; }

 private:
  struct Hash {
    size_t operator()(const Key& key) const;
    size_t operator()(const Sharding& sharding) const;
  };

  int64_t number_of(const Sharding& sharding);
  int64_t number_of_shared(const Sharding& sharding);
  int64_t number_of(const std::string& text);
  void add_to(Key& key, const Expr& size);
  void add_to(Key& key, const ops::Rule& rule);
  void add_to(Key& key, const SubFactor& subfactor);
  Key described(const NodeLayout& node, const Storage& storage, const ValueSet& ordered);
  std::optional<Key> key_of(const NodeLayout& node, const Decided& decided);
  void add_wishes(Key& key, const Value* value, const Node* user, const Decided& decided);
  void add_way(Key& key, const Value* value, const Node* user, const Decided& decided);

  const Layout& layout_;
  std::unordered_map<Sharding, int64_t, Hash> shardings_;
  /// Numbers by the identity of their dimensions, for those with nothing else. Each holds these dimensions, since the
  /// identity of freed ones could be another's. Nodes that are alike share their decisions' layouts, so there are few.
  std::unordered_map<const void*, std::pair<SharedVector<DimSharding>, int64_t>> by_dims_;
  std::unordered_map<std::string, int64_t> texts_;
  std::vector<int64_t> slots_;    // by slot: the number of its sharding
  std::vector<int64_t> classes_;  // by node: equal for nodes that are alike
  std::unordered_map<Key, Outcome, Hash> outcomes_;
  int64_t computed_ = 0;
};

}  // namespace tessera::spmd
