#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/ir/graph.h"
#include "tessera/ops/rule.h"

/// Helpers that the operator families share: operands and their known contents, axes, broadcasting, and errors that
/// name the node. All errors are user errors of the stage "shape".
namespace tessera::ops {

/// Shape computation does not follow longer contents.
constexpr int64_t kMaxContent = 64;

/// Throws "[shape] MatMul 'q': message". The message names the wrong operand and the fix.
template <typename... Args>
[[noreturn]] void fail_node(const Node& node, fmt::format_string<Args...> format, Args&&... args) {
  fail("shape", "{}: {}", node.label(), fmt::format(format, std::forward<Args>(args)...));
}

bool has_operand(const Node& node, size_t index);
/// Operand `index`, present and with a known type and shape.
const Value& operand(const Node& node, size_t index);
/// Shape of operand `index`.
const Shape& shape_of(const Node& node, size_t index);

/// Sets the type of result `index`, and its content if one is given; drops a content longer than kMaxContent or of rank
/// above one. Does nothing if the node lacks that result. A negative extent is an error.
void set_result(Node& node, size_t index, DType dtype, Shape shape,
                std::optional<std::vector<Expr>> content = std::nullopt);

/// The type of a node's sums of operands of that type: float32 for 16-bit operands if accumulate = "float32", which
/// operators of our domain state so that results are rounded only once, after a reduction over ranks; else the
/// operands' own type.
DType sum_dtype(const Node& node, DType operands);

/// The elements of a small integer or boolean tensor (rank 0 or 1, booleans as 0 and 1) if shape computation knows
/// them, from the tensor's content or a constant's data. Nullopt for null, states, longer tensors and other types.
std::optional<std::vector<Expr>> content_of(const Value* value);
/// The elements of an operand that the result's shape depends on; an error naming `what` ("starts", "shape") if they
/// are not known.
std::vector<Expr> content_operand(const Node& node, size_t index, std::string_view what);
/// The elements as numbers; an error if one is a symbolic expression.
std::vector<int64_t> constant_operand(const Node& node, size_t index, std::string_view what);
/// The shape that the model declares for a result, for operators whose result shape depends on data; an error naming
/// the operand `what` if it declares none (or one of another rank, if `rank` is given).
Shape declared_shape(const Node& node, size_t operand, std::string_view what,
                     std::optional<size_t> rank = std::nullopt);

/// An axis in -rank … rank-1 as 0 … rank-1.
size_t normalize_axis(const Node& node, int64_t axis, size_t rank, std::string_view what = "axis");
/// Distinct axes, in the order given.
std::vector<size_t> normalize_axes(const Node& node, const std::vector<int64_t>& axes, size_t rank,
                                   std::string_view what = "axes");
/// The axes that operand `index` holds; nullopt if it is absent.
std::optional<std::vector<size_t>> axes_operand(const Node& node, size_t index, size_t rank);

/// A lower bound, assuming that every symbol is at least 1, as dimensions of a model are in practice, and every axis
/// index at least 0. A slice [0:1] of a symbolic dimension then has extent 1; kernels check their bound extents.
std::optional<int64_t> least(const Expr& expr);

/// Whether it differs from rank to rank.
bool depends_on_rank(const Expr& expr);

/// An extent by an operator's formula, which may fall below zero for a rank whose part has no elements: there it is 0.
Expr extent_of_part(const Expr& formula);

/// Chooses one of two extents that must be equal: a constant before a symbol, a symbol before an expression with min,
/// max, floordiv or mod. Nullopt if both are constant and differ.
std::optional<Expr> same_extent(const Expr& a, const Expr& b);
/// The same under broadcasting: 1 yields the other.
std::optional<Expr> broadcast_extent(const Expr& a, const Expr& b);
/// Numpy's multidirectional broadcast; an error giving all shapes if they do not fit together.
Shape broadcast(const Node& node, const std::vector<const Shape*>& shapes);

/// "a", "b", …, "z", "a1", …: the default name of the factor along dimension `dim`.
std::string factor_name(size_t dim);
/// A broadcasting rule. The dimensions of the results (which all have the same shape) are factors, named from "a"; the
/// operands' dimensions, aligned at the right, use the same factors. A dimension of extent 1 has no factor.
Rule broadcast_rule(const Node& node);
/// A rule in which every dimension of the first operand has a factor, except those of extent 1 and those for which
/// `stays` is false; other operands have none. The caller sets the results.
Rule dimension_rule(const Node& node, const std::vector<bool>& stays);
/// Completes the rule of an operator that only moves elements: these operands may be partial together under every
/// reduction.
Rule moving(Rule rule, const std::vector<int>& operands);

}  // namespace tessera::ops
