#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/ir/graph.h"
#include "tessera/ops/rule.h"

/// What the operator families share: operands and their known contents, axes, broadcasting, and errors that name the
/// node. All errors are user errors of the stage "shape".
namespace tessera::ops {

/// Contents longer than this are not followed.
constexpr int64_t kMaxContent = 64;

/// Throws "[shape] MatMul 'q': message". The message says what was given and how to mend it.
template <typename... Args>
[[noreturn]] void fail_node(const Node& node, fmt::format_string<Args...> format, Args&&... args) {
  fail("shape", "{}: {}", node.label(), fmt::format(format, std::forward<Args>(args)...));
}

bool has_operand(const Node& node, size_t index);
/// Operand `index`, present and with a known type and shape.
const Value& operand(const Node& node, size_t index);
/// Shape of operand `index`.
const Shape& shape_of(const Node& node, size_t index);

/// Sets the type of result `index`, and its content if one is given (a longer one than kMaxContent, or of a rank above
/// one, is dropped). Nothing happens if the result is not wanted. A negative extent is an error.
void set_result(Node& node, size_t index, DType dtype, Shape shape,
                std::optional<std::vector<Expr>> content = std::nullopt);

/// The type of a node's sums of operands of that type: float32 for 16-bit ones where accumulate = "float32" asks for
/// it, as operators of our domain do to be rounded once only, after a reduction over ranks; else the operands' own.
DType sum_dtype(const Node& node, DType operands);

/// The elements of a small integer or boolean tensor (rank 0 or 1, booleans as 0 and 1) where shape computation knows
/// them: from its content, or from a constant's data. Nullopt for null, states, longer tensors and other types.
std::optional<std::vector<Expr>> content_of(const Value* value);
/// The elements of an operand that the result's shape depends on; an error naming `what` ("starts", "shape") if they
/// are not known.
std::vector<Expr> content_operand(const Node& node, size_t index, std::string_view what);
/// The same where they must be numbers.
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

/// A lower bound supposing that every symbol is at least 1, as dimensions of a model are in practice, and every axis
/// index at least 0. A slice [0:1] of a symbolic dimension then has extent 1; kernels check the extents they are bound
/// to.
std::optional<int64_t> least(const Expr& expr);

/// The one extent that two extents which must be equal stand for: a constant before a symbol, a symbol before an
/// expression with min, max, floordiv or mod. Nullopt if both are constant and differ.
std::optional<Expr> same_extent(const Expr& a, const Expr& b);
/// The same under broadcasting: 1 yields the other.
std::optional<Expr> broadcast_extent(const Expr& a, const Expr& b);
/// Numpy's multidirectional broadcast; an error giving all shapes if they do not fit together.
Shape broadcast(const Node& node, const std::vector<const Shape*>& shapes);

/// "a", "b", …, "z", "a1", …: the name of the factor along dimension `dim` where nothing better is known.
std::string factor_name(size_t dim);
/// A rule whose results' dimensions (all results have the same shape) are factors, named from "a", and whose operands'
/// dimensions, aligned at the right, are the factors they run along. A dimension of extent 1 has no factor.
Rule broadcast_rule(const Node& node);
/// A rule in which every dimension of the first operand has a factor, but those where `stays` is false and those of
/// extent 1; other operands have none. The results are left to the caller.
Rule dimension_rule(const Node& node, const std::vector<bool>& stays);
/// The rule of an operator that only moves elements: these operands may be partial together under every reduction.
Rule moving(Rule rule, const std::vector<int>& operands);

}  // namespace tessera::ops
