#pragma once

#include <vector>

#include "tessera/ir/value_map.h"
#include "tessera/spmd/program.h"

namespace tessera::passes {

/// The memory that the results of a program's nodes need on the first rank, at the sizes of the program's hints: the
/// same numbers on every rank. A result shares its operand's memory if it has the same elements in the same order
/// (Reshape, Identity). The next value of a state is computed in the state's memory, and needs none of its own.
class LiveBytes {
 public:
  explicit LiveBytes(const spmd::Program& program);

  /// The value whose memory this one is in; null for values outside the step's own memory: inputs, states, constants
  /// and expressions.
  const Value* home(const Value* value) const;
  /// The bytes of a home.
  double of(const Value* home) const { return *bytes_.find(home); }
  /// The homes that a node reads, and those that it writes, each once.
  std::vector<const Value*> read_by(const Node& node) const;
  std::vector<const Value*> made_by(const Node& node) const;
  /// Homes that are read after the last node.
  const std::vector<const Value*>& kept() const { return kept_; }
  /// The most bytes that are needed at once if the program's nodes run in this order.
  double peak(const std::vector<Node*>& order) const;

 private:
  ValueMap<const Value*> homes_;  // of results
  ValueMap<double> bytes_;
  std::vector<const Value*> kept_;
};

}  // namespace tessera::passes
