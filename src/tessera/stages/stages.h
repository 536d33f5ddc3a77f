#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"

/// Stages of pipelines: which nodes of a graph belong to which (docs/pipelines.md).
namespace tessera::stages {

struct StageSettings {
  int64_t stages = 1;
  /// By stage, its rank; empty: a rank for each stage.
  std::vector<int64_t> ranks_of;
  /// By rank, how fast it computes; empty: all alike.
  std::vector<double> speeds;
  /// By stage, its number of blocks, which may be 0; empty: so that the slowest rank is as fast as possible.
  std::vector<int64_t> blocks;
  /// By stage, the most bytes that its states, and what its backward pass needs of `in_flight` micro-batches, may take.
  /// Empty: any number.
  std::vector<double> memory;
  /// By stage, the micro-batches whose activations it holds at a time; empty: one.
  std::vector<double> in_flight;
  int64_t micro_batches = 1;  ///< of a step: the more there are, the less does filling the pipeline count
  /// Of the graph's symbols; others count as 16.
  Symbols sizes;
  /// What a node takes. Without it, a roofline: 1 TFLOP/s, 200 GB/s.
  std::function<double(const Node&)> seconds;
};

/// A piece of the forward pass that is not divided: a layer, if the graph repeats one.
struct Block {
  int64_t nodes = 0;       ///< of its forward pass
  double seconds = 0;      ///< of all its nodes: forward, backward, update
  double state_bytes = 0;  ///< of the states that it uses first, and of those that follow these, as moments do
  double held_bytes = 0;   ///< results that the backward pass reads, of one micro-batch
  double cut_bytes = 0;    ///< what a later block needs of this and earlier ones, of one micro-batch
  std::string last;        ///< the largest of these, or its last result
};

struct StageInfo {
  int64_t rank = 0;
  int64_t first = 0, blocks = 0;  ///< its blocks
  double share = 0;               ///< of the time of all stages
  double cut_bytes = 0;           ///< what later stages need of this and earlier ones, of one micro-batch
  double memory = 0;              ///< as StageSettings::memory counts
};

struct Stages {
  /// By Node::number, the stage; -1: none, and the node runs wherever its results are read.
  std::vector<int> of_node;
  std::vector<Block> blocks;
  std::vector<StageInfo> stages;
  /// By Node::number, whether the node belongs to the forward pass.
  std::vector<bool> is_forward;
  /// Whether no other division of the blocks is better. Not known where a search among ranks of several stages was cut
  /// short, or the blocks were given.
  bool best = false;

  bool is_in_forward(const Node& node) const { return node.number < is_forward.size() && is_forward[node.number]; }
  int of(const Node& node) const { return node.number < of_node.size() ? of_node[node.number] : -1; }
};

/// Finds blocks and deals them out. The graph may be a model for inference or a training step, ours or a framework's,
/// and its values should have types: one without a shape counts as one byte. If its nodes belong to micro-batches
/// (Node::seat), these must be alike, and get the same stages.
///
/// No result of the forward pass goes to an earlier stage, and none of the backward pass to a later one, except scalars
/// that are summed over all stages (the norm of all gradients). An optimizer's update is where its gradient is summed:
/// at the first stage that uses the parameter.
///
/// Throws a user error, stage "pipeline", if `blocks` are not as many as the graph has, if no division keeps the
/// memory, or if the graph computes nothing but next values of states.
Stages find_stages(const Graph& graph, const StageSettings& settings);

/// A table, a line for each stage: rank, blocks, share of time, bytes to the next.
std::string stages_text(const Stages& stages);

}  // namespace tessera::stages
