#pragma once

#include <map>
#include <set>
#include <vector>

#include "tessera/passes/live_bytes.h"

namespace tessera::passes {

/// The forward pass of a program that trains: the nodes on which its first output, the loss, depends, and those that
/// send their results. Results that later nodes read are held from the forward pass to the backward pass.
///
/// The forward pass falls into segments, at the points where the fewest bytes of activations are alive: for a
/// transformer, the ends of its blocks, where only the residual stream is. An activation is a result that depends on
/// an input and on a state.
class Forward {
 public:
  struct Segment {
    std::vector<Node*> nodes;
    bool last = false;  ///< the backward pass follows directly, and begins with these nodes
  };

  Forward(const spmd::Program& program, const LiveBytes& live);

  bool contains(const Node* node) const { return nodes_.contains(node); }
  const std::vector<Segment>& segments() const { return segments_; }
  /// Whether the activations of a home are between two segments.
  bool is_between(const Value* home) const { return between_.contains(home); }
  bool depends_on_input(const Value* value) const { return of_inputs_.contains(value); }
  bool is_activation(const Value* value) const { return of_inputs_.contains(value) && of_states_.contains(value); }

 private:
  void find_dependences(const Graph& graph);
  // By home of the forward pass. What ranks gather counts as the parts that it is gathered from, and a sum that is then
  // scattered or rounded as what that makes of it: such forms are there for a moment only.
  std::map<const Value*, double> lasting_bytes(const spmd::Program& program, const LiveBytes& live) const;
  void find_segments(const spmd::Program& program, const LiveBytes& live);

  std::set<const Node*> nodes_;
  std::set<const Value*> of_inputs_, of_states_;  // values that depend on them, themselves included
  std::vector<Segment> segments_;
  std::set<const Value*> between_;
};

}  // namespace tessera::passes
