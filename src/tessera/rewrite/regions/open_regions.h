#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::rewrite {

struct LoopForm;

/// A node's branch or body. Throws a user error if it has none of that name.
const Graph& region_of(const Node& node, std::string_view attribute);
/// Adds to `known` the values around the body that it uses, by what it calls them.
void map_captures(const Node& node, const Graph& body, std::map<const Value*, Value*>& known);
/// What begins the names of values in a node's regions, once they are outside.
std::string prefix_of(const Node& node);
/// The name of the node's first result.
std::string first_result(const Node& node);
/// Whether the condition that a Loop's body gives is a constant, or the one that it is given, so that it stays true.
bool stays_true(const Value* condition, const Value* given);
/// Puts a Loop's iterations one after the other in its place if the file says how many there are, they have at most
/// `most_nodes` nodes in all, and they hand on carried values alone. Types need not be known.
bool unroll_counted(Graph& graph, Node* loop, int64_t most_nodes);
/// Throws a user error if the body, or a branch or body in it, draws random numbers.
void refuse_random(const Graph& body, const Node& node);

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
  /// name the node, ops::NotInOneProgram among them.
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

/// Opens all regions of a graph; nothing is decided, and nothing unrolled. `note`, if given, receives each node that
/// comes out of a region, and the iteration or branch that it is in.
void open_regions(Graph& graph, const std::function<void(Node*, Value* around)>& note = nullptr);

}  // namespace tessera::rewrite
