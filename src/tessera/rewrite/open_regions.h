#pragma once

#include <functional>

#include "tessera/ir/graph.h"

namespace tessera::rewrite {

/// Puts the nodes of branches and bodies (If, Loop, Scan) among those of the graph, between nodes of domain
/// tessera.flow (ir/flow.h), so that all later passes see them.
///
/// What is known is decided here: an If with a known condition becomes the branch, and a loop with a known trip count
/// is unrolled if its iterations have at most kFewNodes nodes in all, or if they have at most kManyNodes and it is a
/// loop over experts, or cannot stay a loop (an extent depends on the iteration).
class RegionOpener {
 public:
  static constexpr int64_t kFewNodes = 64, kManyNodes = 20'000;

  /// `visit` is called for each new node, in order; it infers types, folds, and hands nested nodes to open().
  /// Without `decides`, every construct stays one, and values keep their names.
  RegionOpener(Graph& graph, std::function<void(Node*)> visit, bool decides = true)
      : graph_(graph), visit_(std::move(visit)), decides_(decides) {}

  /// Whether the node is an If, Loop or Scan; it is gone then. Types of its operands are known. Throws user errors that
  /// name the node.
  bool open(Node* node);
  /// The iteration or branch whose nodes are being visited; null outside.
  Value* around() const { return around_; }

 private:
  struct LoopForm;

  void open_if(Node* node);
  void open_loop(LoopForm form);
  static bool is_sum_over_parameters(const LoopForm& form);
  LoopForm form_of_loop(Node* node);
  LoopForm form_of_scan(Node* node);
  void keep_loop(const LoopForm& form);
  bool unroll(const LoopForm& form, int64_t trips);
  void give(Node* node, size_t result, Value* value);
  Node* add(std::string_view type, std::vector<Value*> operands, const Node* before, const std::string& name,
            const std::string& label);

  Graph& graph_;
  const std::function<void(Node*)> visit_;
  const bool decides_;
  Value* around_ = nullptr;  // the iteration or branch whose nodes are visited
};

/// Opens all regions of a graph; nothing is decided, and nothing unrolled. `note`, if given, receives each node that
/// comes out of a region, and the iteration or branch that it is in.
void open_regions(Graph& graph, const std::function<void(Node*, Value* around)>& note = nullptr);

}  // namespace tessera::rewrite
