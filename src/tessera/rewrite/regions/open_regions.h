#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::rewrite {

struct LoopForm;

/// The node's graph in that attribute. Throws a user error if there is none.
const Graph& region_of(const Node& node, std::string_view attribute);
/// Adds to `known` the values around the body that it reads, by the body's own values for them.
void map_captures(const Node& node, const Graph& body, std::map<const Value*, Value*>& known);
/// The prefix of names of values in a node's regions, once these are opened.
std::string prefix_of(const Node& node);
/// The name of the node's first result.
std::string first_result(const Node& node);
/// Whether a Loop's condition stays true: its body returns a true constant, or the condition that it is given.
bool stays_true(const Value* condition, const Value* given);
/// Replaces a Loop by its iterations if the file holds their number, they have at most `most_nodes` nodes in all, and
/// all results are carried values. Types need not be known.
bool unroll_counted(Graph& graph, Node* loop, int64_t most_nodes);
/// Throws a user error if the body, or a branch or body in it, draws random numbers.
void refuse_random(const Graph& body, const Node& node);

/// Puts the nodes of branches and bodies (If, Loop, Scan) among those of the graph, between nodes of domain
/// tessera.flow (ir/flow.h), so that all later passes see them.
///
/// Decides what is known: an If with a known condition becomes its branch, and a loop with a known trip count is
/// unrolled if its iterations have at most kFewNodes nodes in all, or at most kManyNodes if it is a loop over experts
/// or cannot stay a loop (an extent depends on the iteration).
class RegionOpener {
 public:
  static constexpr int64_t kFewNodes = 64, kManyNodes = 20'000;

  /// `visit` is called for each new node, in order; it infers types, folds, and hands nested nodes to open(). Without
  /// `decides`, no branch or loop is replaced, and values keep their names.
  RegionOpener(Graph& graph, std::function<void(Node*)> visit, bool decides = true)
      : graph_(graph), visit_(std::move(visit)), decides_(decides) {}

  /// Replaces the node if it is an If, Loop or Scan, else returns false. Its operands' types must be known. Throws user
  /// errors that name the node, ops::NotInOneProgram among them.
  bool open(Node* node);
  /// The iteration or branch whose nodes are being visited; null outside.
  Value* around() const { return around_; }

 private:
  void open_if(Node* node);
  void open_loop(LoopForm form);
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

/// Opens all regions of a graph, without deciding or unrolling anything. `note`, if given, receives each node from a
/// region, and the iteration or branch that it is in.
void open_regions(Graph& graph, const std::function<void(Node*, Value* around)>& note = nullptr);

}  // namespace tessera::rewrite
