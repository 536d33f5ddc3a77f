#pragma once

#include <string_view>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/ops/rule.h"

namespace tessera::ops {

/// Builds a node's local form on one rank, for operators whose local form is more than the same node on local operands.
/// Extents, offsets and shapes are expressions over symbols and axis indices.
class Localizer {
 public:
  const Node& node;                 ///< the global node
  const Rule& rule;                 ///< its rule
  Graph& graph;                     ///< the local program being built; append here
  std::vector<Value*> inputs;       ///< local operands, already in the layout that the rule requires
  std::vector<TensorType> outputs;  ///< local types of the results
  /// Per factor of the rule: this rank's first element and extent, and whether it is split at all.
  std::vector<Expr> offsets;
  std::vector<Expr> extents;
  std::vector<bool> split;
  /// Per factor: zero on the rank that holds its first shard, positive on all others.
  std::vector<Expr> shards;

  /// Appends a node with one result of that type, named after the global result (a fresh name if there are several).
  Value* emit(std::string_view op_type, std::vector<Value*> operands, TensorType type,
              std::vector<Attribute> attributes = {}, std::string_view domain = "");
  /// Appends the node itself on the local operands: same attributes, local result types. Returns its results. If
  /// `outputs` asks for float32 partial sums of 16-bit operands, appends the operator of that name in our domain.
  std::vector<Value*> same();
  /// As same(), with operand `index` replaced by the expression value `content` (rank 1, or a scalar).
  std::vector<Value*> same_with(size_t index, std::vector<Expr> content, bool scalar = false);
  int factor(std::string_view name) const;  ///< index in the rule; -1 if there is none
  /// `addend` on the rank that holds the first shard of factor `f`, zeros on all others, so that it is added to a
  /// partial sum only once. Selects instead of multiplying, so that infinities do not become NaN.
  Value* on_first_shard(Value* addend, int f);
};

/// `value` where `place` is 0, zeros elsewhere: selected, so that infinities do not become NaN.
Value* on_first(Graph& graph, Value* value, const Expr& place);

/// Returns the local results, one per result of the node (null for absent ones).
using LocalizeFn = std::vector<Value*> (*)(Localizer&);

/// Everything the compiler knows about an operator, in one place.
struct OpDef {
  std::string_view type;
  std::string_view domain;
  /// Sets the results' types and contents from the operands' (newest opset form, see rewrite/upgrade). Throws a user
  /// error naming the node if operands are wrong.
  void (*infer)(Node& node);
  /// The rule of this node; shapes are known.
  Rule (*rule)(const Node& node);
  /// Floating-point operations of the whole node; null: none worth counting.
  Expr (*flops)(const Node& node) = nullptr;
  /// Null: the same node on local operands.
  LocalizeFn localize = nullptr;
  /// Its partial sums of 16-bit operands are float32, so that they are rounded once, after the reduction over ranks.
  /// Its kernel is registered in our domain too, with accumulate = "float32".
  bool wide_sums = false;
  /// It works element by element, or only changes the shape; propagation goes through such operators first.
  bool pass_through = false;
  /// Operands whose elements must be known before any run, because the shapes, the rule or the kernel's preparation
  /// read them. The file's data for them are constants, whatever their type, and never States.
  std::vector<size_t> values = {};
  /// For each result, the operands that it is computed from; an empty list means all.
  std::vector<std::vector<size_t>> made_of = {};
};

/// Null for an unknown operator.
const OpDef* find_op(std::string_view type, std::string_view domain);
/// Whether this node gives float32 partial sums of 16-bit operands (OpDef::wide_sums).
bool has_wide_sums(const Node& node);
/// Whether the operator reads the elements of that operand before any run (OpDef::values).
bool reads_values(const Node& node, size_t operand);
/// Every known operator, by domain and type.
std::vector<const OpDef*> all_ops();
/// Throws a user error for an unknown operator that names the node and a way out.
const OpDef& op_of(const Node& node);

/// Runs the operator's infer; a user error for a result that the operator does not have.
void infer_results(const OpDef& op, Node& node);
/// Runs infer over all nodes in order. After it, every result has a dtype and a shape. `stage` is for messages.
void infer_types(Graph& graph);
/// Floating-point operations and bytes (operands and results, once each) of a node.
Expr flops_of(const Node& node);

}  // namespace tessera::ops
