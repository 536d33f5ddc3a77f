#pragma once

#include <string_view>
#include <vector>

#include "tessera/ir/graph.h"

/// The steps of `upgrade`: each brings an operator's older form to a newer one.
///
/// Types are not known yet: values that depend on them are emitted as Shape arithmetic, which `fold` evaluates.
namespace tessera::rewrite {

struct UpgradeStep {
  std::string_view op_type;
  int64_t before;  ///< applies to nodes of operator sets older than this
  void (*apply)(Graph&, Node*, int64_t version);
};

/// A step for nodes of every version.
inline constexpr int64_t kEveryVersion = INT64_MAX;

std::vector<UpgradeStep> early_steps();  // early.cpp: forms before version 13
std::vector<UpgradeStep> late_steps();   // late.cpp: forms since then

/// Sets the node's operand `index` to a constant of those numbers.
void set_numbers(Graph& graph, Node* node, size_t index, std::vector<int64_t> numbers);
/// Turns the attribute's numbers, if there are any, into operand `index`.
void move_to_operand(Graph& graph, Node* node, std::string_view attribute, size_t index);
/// The step that turns the attribute `axes` into operand 1.
void move_axes(Graph& graph, Node* node, int64_t version);
/// Adds a node before `before`, whose result has no type yet.
Value* untyped(Graph& graph, std::string_view type, std::vector<Value*> operands, const Node* before,
               std::vector<Attribute> attributes = {});

}  // namespace tessera::rewrite
