#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ir/graph.h"

/// Helpers of all passes: they make typed nodes, replace values, and query them.
namespace tessera::rewrite {

/// Adds a node before `before`, with `results` results named after `name`, and infers their types. If a result of
/// `before` has this name, that result is renamed, since it is about to be replaced.
Node* emit_node(Graph& graph, std::string_view op_type, std::vector<Value*> operands, const Node* before,
                std::vector<Attribute> attributes = {}, std::string_view name = {}, size_t results = 1);
/// The same; returns its only result.
Value* emit(Graph& graph, std::string_view op_type, std::vector<Value*> operands, const Node* before,
            std::vector<Attribute> attributes = {}, std::string_view name = {});

Attribute attribute(std::string_view name, AttributeValue value);

/// Replaces every use of `from` by `to`. A graph output's name moves along. If it cannot (an input, a state or another
/// output would have to take it), or the ranks differ, changes nothing and returns false.
bool replace(Graph& graph, Value* from, Value* to);

/// Copies a body's nodes before `before`, with names that begin "PREFIX/" if there is one, and returns the copies.
/// `known` maps the body's inputs to values of the graph, and receives all other values.
std::vector<Node*> splice(Graph& graph, const Graph& body, std::map<const Value*, Value*>& known, const Node* before,
                          const std::string& prefix);

/// The current nodes, in order: a copy, since passes add nodes while they iterate.
std::vector<Node*> nodes_of(const Graph& graph);
/// The next node in order; null after the last one.
Node* node_after(const Graph& graph, const Node* node);

/// A one-dimensional int64 operand: a constant if all extents are numbers, else an expression.
Value* shape_operand(Graph& graph, const Shape& shape);
/// x in that shape (same number of elements); x itself if it already has it.
Value* reshaped(Graph& graph, Value* x, const Shape& shape, const Node* before);
/// x broadcast to that shape; x itself if it already has it.
Value* expanded(Graph& graph, Value* x, const Shape& shape, const Node* before);
/// x transposed; x itself if the permutation changes nothing.
Value* transposed(Graph& graph, Value* x, const std::vector<int64_t>& permutation, const Node* before);

/// The node of that type that produces the value; null if there is none.
Node* made_by(const Value* value, std::string_view op_type);
/// Elements of a small integer or bool value, if known.
std::optional<std::vector<Expr>> contents(const Value* value);
/// The same as numbers.
std::optional<std::vector<int64_t>> numbers(const Value* value);
/// The only element of a constant (any numeric type), whatever its rank; nullopt for integers that a double cannot
/// represent.
std::optional<double> scalar_of(const Value* value);
std::optional<double> scalar_of(const Tensor& data);
/// Whether that element is `expected`, up to the rounding of a float32.
bool is_scalar(const Value* value, double expected);
/// Whether exactly one operand uses the value, and it is not a graph output, so it may become part of a raised
/// operator.
bool used_once(const Graph& graph, const Value* value);
/// The value of an axis attribute, which counts from the end if negative, in [0, rank).
int64_t axis_of(const Node& node, std::string_view name, int64_t otherwise, size_t rank);
/// For each dimension of a Transpose's result, which dimension of its operand it is.
std::vector<int64_t> permutation_of(const Node& transpose);
/// Whether the operator works element by element and broadcasts its operands.
bool is_elementwise(const Node& node);
/// Shape of the broadcast of two shapes; nullopt if constants contradict.
std::optional<Shape> broadcast(const Shape& a, const Shape& b);

/// The content of a value as a constant or, over symbols, as an expression; null for types that neither can hold.
Value* known_value(Graph& graph, const Value& value);

}  // namespace tessera::rewrite
