#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/mesh/mesh.h"

namespace tessera::program_io {

/// The prefix of the names of symbols' scalar inputs: "symbol:batch".
inline constexpr std::string_view kSymbolPrefix = "symbol:";

/// Turns expressions into int64 nodes, appended to a graph. A symbol becomes a scalar int64 input "symbol:NAME", an
/// axis index the result of `axis_index`; equal subexpressions share nodes. All nodes work on one element of rank 1.
///
/// Example: {2*batch + 1, 64} is Concat(Add(Mul(Unsqueeze(symbol:batch), [2]), [1]), [64]).
class ExpressionNodes {
 public:
  /// `axis_index` returns the int64 scalar with this rank's index along an axis.
  using AxisIndex = std::function<Value*(const std::string& axis)>;
  ExpressionNodes(Graph& graph, AxisIndex axis_index) : graph_(graph), axis_index_(std::move(axis_index)) {}

  /// A value of that integer or bool type with these elements: of rank 0 if `scalar`, else of rank 1. It is a constant
  /// if all elements are constant.
  Value* value_of(const std::string& name, const std::vector<Expr>& elements, bool scalar, DType dtype);

 private:
  Value* element(const Expr& expr);
  Value* term(int64_t coefficient, const Expr::Term& term);
  Value* atom(const Expr::Atom& atom);
  Value* number(int64_t value);
  Value* apply(std::string_view op_type, std::vector<Value*> operands, std::string_view name = "");

  Graph& graph_;
  AxisIndex axis_index_;
  std::map<std::string, Value*> known_;  ///< by printed form
};

/// Turns the inputs of a written model that are symbols or the rank's number into values of kind expression, over axis
/// indices or, if `rank` is given, for that rank.
void take_position_inputs(Graph& graph, const Mesh& mesh, std::optional<int64_t> rank);

/// The types that a file states for nodes' results, by the results' names.
using StatedTypes = std::map<std::string, TensorType>;

/// The inverse of ExpressionNodes, on a graph that was read. Inputs that are symbols or the rank's number, RankId,
/// AxisIndex and Neighbor nodes, and all values computed from these and from shapes become values of kind expression,
/// over axis indices or, if `rank` is given, for that rank. Values that it cannot derive stay as they are.
///
/// Infers the types of all results from the nodes; returns the extents that the file states in a form whose equality is
/// not known. Throws user errors that name the node if its operands are invalid, or if the file states a different
/// element type, rank or number. `ranks`: those that run it, if not all.
StatedTypes fold_expression_nodes(Graph& graph, const Mesh& mesh, std::optional<int64_t> rank = std::nullopt,
                                  const std::vector<int>& ranks = {});

}  // namespace tessera::program_io
