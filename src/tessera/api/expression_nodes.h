#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::api {

/// A symbol's scalar input is called so: "symbol:batch".
inline constexpr std::string_view kSymbolPrefix = "symbol:";

/// Turns expressions into int64 nodes, appended to a graph. A symbol is a scalar int64 input "symbol:NAME", an axis
/// index an AxisIndex node; equal subexpressions share nodes. All nodes work on one element of rank 1.
///
/// Example: {2*batch + 1, 64} is Concat(Add(Mul(Unsqueeze(symbol:batch), [2]), [1]), [64]).
class ExpressionNodes {
 public:
  explicit ExpressionNodes(Graph& graph) : graph_(graph) {}

  /// A value of that integer or bool type with these elements: of rank 0 if `scalar`, else of rank 1. A constant if all
  /// elements are.
  Value* value_of(const std::string& name, const std::vector<Expr>& elements, bool scalar, DType dtype);

 private:
  Value* element(const Expr& expr);
  Value* term(int64_t coefficient, const Expr::Term& term);
  Value* atom(const Expr::Atom& atom);
  Value* number(int64_t value);
  Value* apply(std::string_view op_type, std::vector<Value*> operands, std::string_view name = "");

  Graph& graph_;
  std::map<std::string, Value*> known_;  ///< by printed form
};

/// The inverse, on a graph that was read: inputs that are symbols, AxisIndex nodes and whatever is computed from them
/// alone become values of kind expression. What cannot be followed stays as it is.
void fold_expression_nodes(Graph& graph);

}  // namespace tessera::api
